// The page: text in, sound out, and what the listener experienced.

import { Player, RATE_HZ, wakeAudio } from "./player.js";
import { getJson, speak } from "./speech.js";
import { wavFile } from "./wav.js";
import { Wave } from "./wave.js";
import { firstLanguage, words } from "./words.js";

const MOST_AHEAD_SAMPLES = 120 * RATE_HZ;

const $ = (id) => document.getElementById(id);
const wave = new Wave($("wave"));
const server = { model: null, voices: [], mostCharacters: null };
let language = firstLanguage();
let session = null; // the utterance being spoken, or the last one

// --- words ---

function showLanguage() {
  const say = words[language];
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-word]")) element.textContent = say[element.dataset.word];
  for (const element of document.querySelectorAll("[data-placeholder]")) element.placeholder = say[element.dataset.placeholder];
  for (const element of document.querySelectorAll("[data-label]")) element.ariaLabel = say[element.dataset.label];
  $("language").textContent = language === "zh" ? "English" : "中文";
  $("language").lang = language === "zh" ? "en" : "zh";
  showModel();
  showState();
  showCount();
  showFigures();
}

function showCount() {
  const count = [...$("text").value].length;
  const most = server.mostCharacters ?? Infinity;
  const limit = count > 0.8 * most ? most.toLocaleString(language) : null; // no news until it is near
  $("count").textContent = words[language].characters(count.toLocaleString(language), limit);
  $("count").classList.toggle("over", count > most);
}

function showModel() {
  const name = server.model?.id ?? "…";
  $("model-name").textContent = $("model").dataset.state === "waking" ? `${name} · ${words[language].waking}` : name;
}

function showProblem(error) {
  const problems = words[language].problems;
  const told = error && (problems[error.code] ?? error.message);
  $("problem").textContent = told ?? "";
  $("problem").hidden = !told;
}

// --- what the listener experienced ---

function clock(samples) {
  const tenths = Math.floor((samples * 10) / RATE_HZ);
  const seconds = ((tenths % 600) / 10).toFixed(1).padStart(4, "0");
  return `${Math.floor(tenths / 600)}:${seconds}`;
}

function figure(id, value, text) {
  $(id).textContent = value === null ? "–" : text(value);
  $(id).dataset.value = value ?? "";
}

function showFigures() {
  const say = words[language];
  const [received, played] = [session?.received ?? 0, session?.played ?? 0];
  const wallS = session?.receivedAt ? (session.receivedAt - session.askedAt - session.pausedMs) / 1000 : null;
  const underrunMs = session?.startedAt ? (session.underrun * 1000) / RATE_HZ : null;
  figure("first-sound", session?.startedAt ? session.startedAt - session.askedAt : null, (v) => say.ms(Math.round(v)));
  figure("rtf", received && wallS !== null ? (wallS * RATE_HZ) / received : null, (v) => v.toFixed(2));
  figure("underrun", underrunMs, (v) => say.ms(Math.round(v)));
  figure("total", received ? received / RATE_HZ : null, (v) => say.s(v.toFixed(2)));
  $("underrun").dataset.mood = underrunMs === null ? "" : underrunMs > 0 ? "bad" : "good";
  $("played").textContent = clock(played);
  $("received").textContent = clock(received);
  $("wave").dataset.played = played;
}

function showState(state = $("status").dataset.state) {
  $("status").dataset.state = state;
  $("status").textContent = words[language][state];
  $("stop").disabled = !["waiting", "playing"].includes(state);
  $("download").disabled = !session?.received;
}

// --- speaking ---

function start() {
  stop();
  showProblem(null);
  session = {
    abort: new AbortController(), player: null, pieces: [], voice: $("voice").value,
    received: 0, played: 0, underrun: 0, askedAt: performance.now(), startedAt: null, receivedAt: null, pausedMs: 0,
  };
  wave.clear();
  showState("waiting");
  showFigures();
  run(session).catch((error) => fail(session, error));
}

async function run(current) {
  const body = {
    model: server.model?.id ?? "tts-1", input: $("text").value, voice: current.voice || null, speed: Number($("speed").value),
  };
  const audio = wakeAudio().catch(() => { throw Object.assign(new Error(), { code: "silent" }); });
  audio.catch(() => {}); // it is awaited with the first samples; until then it must not count as unhandled
  for await (const samples of speak(body, $("key").value, current.abort.signal)) {
    if (!current.player) {
      await audio;
      if (current.abort.signal.aborted) return;
      current.player = new Player((message) => hear(current, message));
    }
    current.player.push(samples);
    current.pieces.push(samples);
    current.received += samples.length;
    current.receivedAt = performance.now();
    if (current === session) {
      wave.push(samples);
      $("download").disabled = false;
      showFigures();
    }
    await farAhead(current);
  }
  if (current.player) current.player.end();
  else showState("done");
  wave.end();
}

// A long text is made faster than it is heard. Not reading on makes the server wait too, so no memory fills up.
async function farAhead(current) {
  const since = performance.now();
  while (current === session && !current.abort.signal.aborted && current.received - current.played > MOST_AHEAD_SAMPLES) {
    await new Promise((wake) => setTimeout(wake, 500));
  }
  current.pausedMs += performance.now() - since;
}

function hear(current, message) {
  if (current !== session) return;
  if (message.type === "started") {
    current.startedAt = performance.now();
    showState("playing");
  } else {
    current.played = message.played;
    current.underrun = message.underrun;
    wave.play(message.played, message.type === "over" ? 0 : message.peak);
    if (message.type === "over" && !current.abort.signal.aborted) showState("done");
  }
  showFigures();
}

function stop() {
  if (!session || !["waiting", "playing"].includes($("status").dataset.state)) return;
  session.abort.abort();
  session.player?.stop();
  showState("stopped");
}

function fail(current, error) {
  if (current !== session || current.abort.signal.aborted) return;
  current.abort.abort();
  current.player?.stop();
  showProblem(error);
  if (error.status === 401) askForKey();
  showState("failed");
}

function download() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(wavFile(session.pieces, RATE_HZ));
  link.download = `legato-${session.voice || "speech"}.wav`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

// --- the server ---

function askForKey() {
  $("key-card").hidden = false;
  $("key").focus();
}

async function meetServer() {
  try {
    const key = $("key").value;
    const [models, voices] = await Promise.all([getJson("v1/models", key), getJson("v1/audio/voices", key)]);
    server.model = models.data[0];
    server.mostCharacters = server.model.max_input_characters ?? null;
    server.voices = voices.voices;
    $("voice").replaceChildren(...server.voices.map(voiceOption));
    if (key) sessionStorage.setItem("key", key);
    showProblem(null);
    await waitUntilReady();
  } catch (error) {
    $("model").dataset.state = "waiting";
    showProblem(error);
    if (error.status === 401) askForKey();
  }
}

function voiceOption(voice) {
  const option = new Option(voice.name, voice.id, false, voice.id === server.model.default_voice);
  option.title = voice.description ?? "";
  return option;
}

async function waitUntilReady() {
  const { ok } = await fetch("ready");
  $("model").dataset.state = ok ? "ready" : "waking";
  showLanguage();
  if (!ok) setTimeout(() => waitUntilReady().catch(() => {}), 2000);
}

function fillSample() {
  const spoken = server.model?.languages ?? [];
  const has = (wanted) => !spoken.length || spoken.some((name) => name.toLowerCase().startsWith(wanted));
  const other = language === "zh" ? "en" : "zh";
  $("text").value = words[has(language) || !has(other) ? language : other].sample;
  showCount();
}

$("composer").addEventListener("submit", (event) => { event.preventDefault(); start(); });
$("stop").addEventListener("click", stop);
$("download").addEventListener("click", download);
$("text").addEventListener("input", showCount);
$("key-card").addEventListener("submit", (event) => { event.preventDefault(); meetServer(); });
$("key").addEventListener("change", meetServer);
$("language").addEventListener("click", () => {
  language = language === "zh" ? "en" : "zh";
  localStorage.setItem("language", language);
  showLanguage();
});
addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); start(); }
  if (event.key === "Escape") stop();
});

$("key").value = sessionStorage.getItem("key") ?? "";
showLanguage();
await meetServer();
if (!$("text").value) fillSample();
