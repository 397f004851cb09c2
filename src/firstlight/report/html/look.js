"use strict";
(() => {
  const tip = document.getElementById("tip");
  const said = new WeakMap();
  // The browser's own tooltip is slow and keyboard users never see it: ours takes its text over.
  for (const node of document.querySelectorAll(".n")) {
    const title = node.querySelector(":scope > title");
    const text = title ? title.textContent : node.getAttribute("title") || "";
    said.set(node, text);
    node.setAttribute("tabindex", "0");
    if (title) { node.setAttribute("role", "img"); node.setAttribute("aria-label", text); title.remove(); }
    else { node.setAttribute("aria-description", text); node.removeAttribute("title"); }
  }
  const show = (node) => {
    const text = said.get(node);
    if (!text) return;
    tip.textContent = text;
    tip.hidden = false;
    const at = node.getBoundingClientRect(), box = tip.getBoundingClientRect();
    const room = document.documentElement.clientWidth - box.width - 8;
    const left = Math.max(8, Math.min(at.left + at.width / 2 - box.width / 2, room));
    const above = at.top - box.height - 8;
    tip.style.left = `${left}px`;
    tip.style.top = `${above > 4 ? above : at.bottom + 8}px`;
  };
  const hide = () => { tip.hidden = true; };
  const near = (event) => (event.target instanceof Element ? event.target.closest(".n") : null);
  document.addEventListener("mouseover", (event) => { const node = near(event); if (node) show(node); else hide(); });
  document.addEventListener("focusin", (event) => { const node = near(event); if (node) show(node); else hide(); });
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, { passive: true, capture: true });

  // One stop of the Tab key for a chart or a table; arrow keys inside it.
  for (const group of document.querySelectorAll("[data-rove]")) {
    const nodes = () => [...group.querySelectorAll(".n")].filter((node) => !node.closest("[hidden]"));
    nodes().forEach((node, place) => { if (place) node.setAttribute("tabindex", "-1"); });
    group.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      const all = nodes(), place = all.indexOf(document.activeElement);
      if (event.key === "Escape") hide();
      if (!step || place < 0) return;
      const next = all[place + step];
      event.preventDefault();
      if (!next) return;
      all[place].setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }

  const filter = document.getElementById("filter");
  if (filter) {
    filter.parentElement.hidden = false;
    filter.addEventListener("input", () => {
      const wanted = filter.value.trim().toLowerCase();
      for (const table of document.querySelectorAll("#cases table")) {
        let left = 0;
        for (const row of table.tBodies[0].rows) {
          row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
          left += row.hidden ? 0 : 1;
        }
        table.hidden = left === 0;
      }
    });
  }

  const folded = () => document.querySelectorAll("details:not([open])");
  let opened = [];
  addEventListener("beforeprint", () => { opened = [...folded()]; opened.forEach((each) => { each.open = true; }); });
  addEventListener("afterprint", () => { opened.forEach((each) => { each.open = false; }); });

  const unpacked = async (node) => {
    if (node.type === "application/json") return node.textContent;
    const bytes = Uint8Array.from(atob(node.textContent), (character) => character.charCodeAt(0));
    return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  };
  const save = document.getElementById("save");
  if (save && "DecompressionStream" in window) {
    save.hidden = false;
    save.addEventListener("click", async () => {
      for (const [place, node] of [...document.querySelectorAll(".firstlight-data")].entries()) {
        const link = document.createElement("a");
        link.href = URL.createObjectURL(new Blob([await unpacked(node)], { type: "application/json" }));
        link.download = `firstlight-${place + 1}.json`;
        link.click();
        URL.revokeObjectURL(link.href);
      }
    });
  }
})();
