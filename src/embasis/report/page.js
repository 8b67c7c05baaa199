"use strict";
{
  const near = 30;
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true"); // a mark says its value itself when it is focused
  document.querySelector("main").append(tip);
  for (const title of document.querySelectorAll(".m > title")) { // else the browser's own hint would lie over ours
    title.parentNode.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  let shown = null;
  const middle = (mark) => {
    const box = mark.getBoundingClientRect();
    return [box.left + box.width / 2, box.top + box.height / 2, box];
  };
  const hide = () => {
    tip.hidden = true;
    if (shown) shown.classList.remove("now");
    shown = null;
  };
  const place = () => {
    const [x, y, box] = middle(shown);
    const low = box.height > 60 ? y : box.top;
    const left = Math.min(Math.max(x - tip.offsetWidth / 2, 6), document.documentElement.clientWidth - tip.offsetWidth - 6);
    tip.style.left = `${left}px`;
    tip.style.top = `${low - tip.offsetHeight - 9 > 4 ? low - tip.offsetHeight - 9 : box.bottom + 9}px`;
  };
  const show = (mark, marks = [mark]) => {
    if (shown !== mark) hide();
    shown = mark;
    mark.classList.add("now");
    tip.textContent = marks.map((one) => one.getAttribute("aria-label")).join("\n");
    tip.hidden = false;
    place();
  };
  const closest = (marks, x, y) => {
    let best = null, least = Infinity;
    for (const mark of marks) {
      const [a, b] = middle(mark), far = Math.hypot(a - x, b - y);
      if (far < least) [best, least] = [mark, far];
    }
    return [best, least];
  };
  const walk = (mark, key) => {
    const row = [...mark.parentNode.querySelectorAll(".m")], at = row.indexOf(mark);
    if (key === "ArrowRight") return row[at + 1];
    if (key === "ArrowLeft") return row[at - 1];
    if (key === "Home") return row[0];
    if (key === "End") return row[row.length - 1];
    if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
    const rows = [...mark.ownerSVGElement.querySelectorAll("g")].filter((group) => group.querySelector(".m"));
    const other = rows[rows.indexOf(mark.parentNode) + (key === "ArrowDown" ? 1 : -1)];
    const [x] = middle(mark);
    return other && [...other.querySelectorAll(".m")].reduce((a, b) => Math.abs(middle(b)[0] - x) < Math.abs(middle(a)[0] - x) ? b : a);
  };
  for (const chart of document.querySelectorAll(".chart")) {
    const point = (event) => {
      const under = event.target.closest(".m");
      const [mark, far] = under ? [under, 0] : closest(chart.querySelectorAll(".m"), event.clientX, event.clientY);
      if (!mark || far >= near) { hide(); return; }
      const [x, y] = middle(mark); // marks that lie upon each other are told together
      show(mark, [...chart.querySelectorAll(".m")].filter((one) => {
        const [a, b] = middle(one);
        return one === mark || Math.hypot(a - x, b - y) < 4;
      }));
    };
    chart.addEventListener("pointermove", point);
    chart.addEventListener("pointerdown", point);
    chart.addEventListener("pointerleave", () => { if (!chart.contains(document.activeElement)) hide(); });
    const frame = chart.parentNode; // a picture that listens for focus would itself be reached by Tab
    frame.addEventListener("focusin", (event) => { if (event.target.matches(".m")) show(event.target); });
    frame.addEventListener("focusout", hide);
    frame.addEventListener("keydown", (event) => {
      if (event.key === "Escape") { hide(); return; }
      const next = event.target.matches(".m") ? walk(event.target, event.key) : undefined;
      if (!next) return;
      event.preventDefault();
      event.target.setAttribute("tabindex", "-1");
      next.setAttribute("tabindex", "0");
      next.focus();
    });
  }
  addEventListener("scroll", () => { if (shown) place(); }, { passive: true });
}
