// A wav file of 16-bit mono samples.

export function wavFile(pieces, rateHz) {
  const bytes = 2 * pieces.reduce((sum, piece) => sum + piece.length, 0);
  const header = new DataView(new ArrayBuffer(44));
  const text = (at, letters) => [...letters].forEach((letter, i) => header.setUint8(at + i, letter.charCodeAt(0)));
  text(0, "RIFF");
  header.setUint32(4, 36 + bytes, true);
  text(8, "WAVEfmt ");
  header.setUint32(16, 16, true);
  header.setUint16(20, 1, true);
  header.setUint16(22, 1, true);
  header.setUint32(24, rateHz, true);
  header.setUint32(28, 2 * rateHz, true);
  header.setUint16(32, 2, true);
  header.setUint16(34, 16, true);
  text(36, "data");
  header.setUint32(40, bytes, true);
  return new Blob([header, ...pieces], { type: "audio/wav" });
}
