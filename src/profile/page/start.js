// SPDX-License-Identifier: Apache-2.0
// The page's script lies deflated in it, as its data do. This unpacks it in any browser, also in one without
// DecompressionStream, which shows the report and says what is missing. A script element with the text in it runs by the
// page's Content-Security-Policy, which allows inline scripts and no eval().
"use strict";

// The bytes that zlib deflated (RFC 1950 and 1951), decoded bit by bit: for texts of some 100 KB.
function inflated(packed) {
  const kCodeOrder = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
  const out = [];
  let at = 2, held = 0, heldBits = 0, isLast = 0;
  const bits = (count) => {
    for (; heldBits < count; heldBits += 8) held |= packed[at++] << heldBits;
    const value = held & (1 << count) - 1;
    held >>>= count;
    heldBits -= count;
    return value;
  };
  // Canonical codes: how many there are of every length, and their symbols in order.
  const codes = (lengths) => {
    const counts = Array(16).fill(0), symbols = [];
    for (const length of lengths) ++counts[length];
    for (let length = 1; length < 16; ++length)
      lengths.forEach((own, symbol) => own === length && symbols.push(symbol));
    return {counts, symbols};
  };
  const symbol = ({counts, symbols}) => {
    for (let length = 1, code = 0, first = 0, index = 0; length < 16; ++length) {
      code |= bits(1);
      const count = counts[length];
      if (code - first < count) return symbols[index + code - first];
      index += count;
      first = first + count << 1;
      code <<= 1;
    }
    throw new Error("its script is damaged");
  };
  // Lengths and distances come in steps of 4 and of 2 for every bit that follows their symbol.
  const scaled = (number, step, extra) => extra < 1 ? number : (step + number % step << extra) + bits(extra);
  const copy = (number) => {
    const count = number === 285 ? 258 : 3 + scaled(number - 257, 4, (number - 257 >> 2) - 1);
    const distance = symbol(distances);
    const back = 1 + scaled(distance, 2, (distance >> 1) - 1);
    for (let k = 0; k < count; ++k) out.push(out[out.length - back]);
  };
  let literals, distances;
  while (!isLast) {
    isLast = bits(1);
    const kind = bits(2);
    if (kind === 0) {
      held = heldBits = 0;
      const count = packed[at] | packed[at + 1] << 8;
      at += 4;
      for (let k = 0; k < count; ++k) out.push(packed[at++]);
      continue;
    }
    if (kind === 1) {
      literals = codes(Array.from({length: 288}, (_, k) => k < 144 ? 8 : k < 256 ? 9 : k < 280 ? 7 : 8));
      distances = codes(Array(30).fill(5));
    } else {
      const literalCount = bits(5) + 257, distanceCount = bits(5) + 1, lengths = Array(19).fill(0);
      const codeCount = bits(4) + 4;
      for (let k = 0; k < codeCount; ++k) lengths[kCodeOrder[k]] = bits(3);
      const ofLengths = codes(lengths), all = [];
      while (all.length < literalCount + distanceCount) {
        const one = symbol(ofLengths);
        if (one < 16) {
          all.push(one);
        } else {
          const again = one === 16 ? all[all.length - 1] : 0;
          for (let k = one === 16 ? 3 + bits(2) : one === 17 ? 3 + bits(3) : 11 + bits(7); k > 0; --k) all.push(again);
        }
      }
      literals = codes(all.slice(0, literalCount));
      distances = codes(all.slice(literalCount));
    }
    for (let number = symbol(literals); number !== 256; number = symbol(literals))
      number < 256 ? out.push(number) : copy(number);
  }
  return Uint8Array.from(out);
}

{
  const from = document.getElementById("paoding-script"), script = document.createElement("script");
  const packed = Uint8Array.from(atob(from.textContent), (c) => c.charCodeAt(0));
  script.textContent = new TextDecoder().decode(inflated(packed));
  from.replaceWith(script);
}
