// The server's API, as this page uses it. Addresses are relative, so that a proxy may put the page under any path.
// What goes wrong is thrown with a `code`: the server's own, or "unreachable", or "broken" once its answer had begun.

function fail(code, message = code, status = 0) {
  throw Object.assign(new Error(message), { code, status });
}

async function refuse(response) {
  const { error = {} } = await response.json().catch(() => ({}));
  fail(error.code, error.message ?? `HTTP ${response.status}`, response.status);
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

export async function getJson(path, key) {
  const response = await fetch(path, { headers: headers(key) }).catch(() => fail("unreachable"));
  return response.ok ? response.json() : refuse(response);
}

// Int16 samples as they arrive. Aborting `signal` closes the connection, and that cancels the request in the server.
export async function* speak(body, key, signal) {
  const response = await fetch("v1/audio/speech", {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, response_format: "pcm" }),
    signal,
  }).catch(() => fail("unreachable"));
  if (!response.ok) await refuse(response);
  const reader = response.body.getReader();
  let rest = new Uint8Array(0); // a network chunk may end in the middle of a sample
  for (;;) {
    const { done, value } = await reader.read().catch(() => fail("broken"));
    if (done) return;
    const bytes = new Uint8Array(rest.length + value.length);
    bytes.set(rest);
    bytes.set(value, rest.length);
    const even = bytes.length & ~1;
    rest = bytes.slice(even);
    if (even) yield new Int16Array(bytes.buffer, 0, even / 2);
  }
}
