"""What is asked of a page in a browser: each script gives the faults it sees, as text."""

from __future__ import annotations

# Text against the colour behind it, by WCAG 2: 4.5, or 3 for large text.
CONTRAST = """(() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = rgb(getComputedStyle(at).backgroundColor);
      if (colour.length === 3 || colour[3] > 0.99) return colour;
    }
    return [255, 255, 255];
  };
  const bad = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement, style = getComputedStyle(node);
    if (!walker.currentNode.textContent.trim() || ["SCRIPT", "STYLE", "title"].includes(node.tagName)) continue;
    if (!node.getClientRects().length) continue;
    const front = rgb(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(node))].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.6 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) bad.push(`${node.textContent.slice(0, 40)} ${ratio.toFixed(2)}`);
  }
  return bad;
})()"""
# Lines of text that lie on each other by more than a hair, anywhere on the page; turned labels are left out.
OVERLAP = """(() => {
  const lines = [], bad = [], range = document.createRange();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement;
    if (!text.textContent.trim() || node.closest("script, title, .sr, .skip, thead, [transform]")) continue;
    range.selectNodeContents(text);
    for (const box of range.getClientRects()) if (box.width && box.height) lines.push([text, box]);
  }
  lines.sort((a, b) => a[1].top - b[1].top);
  lines.forEach(([one, a], place) => {
    for (let next = place + 1; next < lines.length && lines[next][1].top < a.bottom; next += 1) {
      const [other, b] = lines[next];
      const wide = Math.min(a.right, b.right) - Math.max(a.left, b.left);
      const tall = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
      if (other !== one && wide > 1 && tall > 5) bad.push(`${one.textContent} / ${other.textContent}`);
    }
  });
  return bad;
})()"""
# What reaches beyond the screen and is in no box that scrolls.
TOO_WIDE = """(() => {
  const scrolls = (node) => { for (let at = node.parentElement; at; at = at.parentElement)
    if (["auto", "scroll"].includes(getComputedStyle(at).overflowX)) return true; return false; };
  return [...document.body.querySelectorAll("*")]
    .filter((node) => node.getClientRects().length && !node.closest(".skip, .sr, thead, script"))
    .filter((node) => { const box = node.getBoundingClientRect(); return box.right > innerWidth + 1 || box.left < -1; })
    .filter((node) => !scrolls(node)).map((node) => `${node.tagName} ${node.textContent.slice(0, 60)}`);
})()"""
# Labels that are cut off at the edge of their drawing.
CUT = """[...document.querySelectorAll("svg text")].filter((node) => {
  const box = node.getBoundingClientRect(), all = node.ownerSVGElement.getBoundingClientRect();
  return box.right > all.right + 1 || box.left < all.left - 1 || box.bottom > all.bottom + 2 || box.top < all.top - 2;
}).map((node) => node.textContent)"""
# Commands of ours, and of the usual tools, outside of what is set as code.
NOT_CODE = """(() => {
  const bad = [], ours = "\\\\bfirstlight (apply|bench|doctor|facts|handover|libs|plan|report|undo|verify)\\\\b";
  const command = new RegExp(`${ours}|\\\\b(apt-get|pip|conda) install|\\\\bcurl -|\\\\bsudo [a-z]`);
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (command.test(walker.currentNode.textContent) && !node.closest("script, code, pre, .kind"))
      bad.push(walker.currentNode.textContent);
  }
  for (const node of document.querySelectorAll("code, pre"))
    if (!/monospace$/.test(getComputedStyle(node).fontFamily)) bad.push(node.textContent);
  return bad;
})()"""
# Marks of the roofline and of the families that lie on each other.
HIDDEN_MARKS = """["roofline", "families"].flatMap((name) => {
  const marks = [...document.querySelectorAll(`#${name} circle`)].map((mark) => ["cx", "cy", "r"]
    .map((key) => Number(mark.getAttribute(key))));
  return marks.flatMap(([x, y, r], place) => marks.slice(place + 1)
    .filter(([u, v, s]) => Math.hypot(x - u, y - v) < r + s).map(([u, v]) => `${name} ${x},${y} / ${u},${v}`));
})"""
# Strips of samples without a scale: the fastest and the slowest time under them.
NO_SCALE = """[...document.querySelectorAll(".samples")].filter((strip) => {
  const ends = [...strip.querySelectorAll("small")].map((node) => node.textContent);
  return !ends.length || !ends.every((end) => /^[0-9.]+ (ns|us|ms|s)$/.test(end));
}).map((strip) => strip.textContent)"""
# Boxes that scroll, by what look.css says of them; a box that is too narrow must be among them.
SCROLLING = """[...document.querySelectorAll("*")].filter((node) => node.scrollWidth > node.clientWidth + 1
  && ["auto", "scroll"].includes(getComputedStyle(node).overflowX)).map((node) => node.className || node.tagName)"""
# Cells of tables, tiles and sections that stick out of their box, or lie on their neighbour.
STICKS_OUT = """(() => {
  const bad = [];
  for (const cell of document.querySelectorAll("td, th, .tiles li, article, figure")) {
    if (!cell.getClientRects().length || cell.closest("thead, .frame")) continue;
    const right = cell.getBoundingClientRect().right;
    for (const inside of cell.querySelectorAll("span, svg, strong")) {
      if (inside.closest("svg") && inside.tagName !== "svg") continue;
      if (inside.getBoundingClientRect().right > right + 1.5 && !inside.closest(".frame"))
        bad.push(`${cell.textContent.slice(0, 50)}: ${inside.getBoundingClientRect().right - right}`);
    }
  }
  return bad;
})()"""
# Short words, versions and options that a line end divides; a time of 0.00003751 ns is no measurement.
DIVIDED = """(() => {
  const bad = [], range = document.createRange();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode, node = text.parentElement;
    if (!node.getClientRects().length || node.closest("script, pre, svg, .sr, thead")) continue;
    const words = node.closest("code") ? /--[\\w-]{2,16}/g : /(?!0\\.000)[\\w.+]{2,16}/g;
    for (const word of text.textContent.matchAll(words)) {
      const ends = [word.index - 1, word.index + word[0].length].map((at) => text.textContent[at] || " ");
      if (!node.closest("code") && ends.some((end) => /[\\w.+/-]/.test(end))) continue;
      range.setStart(text, word.index);
      range.setEnd(text, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map((box) => Math.round(box.top))).size > 1)
        bad.push(`${word[0]} in ${text.textContent.slice(0, 60)}`);
    }
  }
  return bad;
})()"""
SIDEWAYS = "document.documentElement.scrollWidth - innerWidth"
# What makes a page readable, in the order in which faults are easiest to mend.
READABLE = (TOO_WIDE, OVERLAP, CUT, STICKS_OUT, NOT_CODE, NO_SCALE, HIDDEN_MARKS, DIVIDED, CONTRAST)
