/* Opens a citation's card on hover, focus or tap; Escape, or leaving, closes it.
 *
 * A card is a piece of the site, fetched when it is first asked for. A mouse's click follows the
 * permalink; a tap opens the card first, and the card holds the permalink. */
(function () {
  "use strict";

  const DELAY = 150; // milliseconds: a pointer that only passes opens nothing
  const kept = new Map();
  let card = null;
  let owner = null;
  let timer = 0;
  let touched = false;

  function close(refocus) {
    clearTimeout(timer);
    if (!card) return;
    const link = owner;
    card.remove();
    link.removeAttribute("aria-expanded");
    link.removeAttribute("aria-controls");
    card = owner = null;
    if (refocus) {
      closedByKey = link;
      link.focus();
    }
  }

  let closedByKey = null;

  function text(address) {
    if (!kept.has(address)) {
      const answer = fetch(address).then((response) => {
        if (!response.ok) throw new Error(response.status);
        return response.text();
      });
      answer.catch(() => kept.delete(address));
      kept.set(address, answer);
    }
    return kept.get(address);
  }

  async function open(link) {
    if (owner === link) return;
    close(false);
    owner = link;
    let html;
    try {
      html = await text(link.dataset.card);
    } catch {
      if (owner === link) owner = null;
      return; // the permalink still works
    }
    if (owner !== link) return;
    card = document.createElement("span");
    card.className = "citation-card";
    card.id = "citation-card";
    card.dataset.mark = link.dataset.mark || ""; // the page's style hides a card without its mark
    card.setAttribute("role", "dialog");
    card.setAttribute("aria-label", link.title);
    card.innerHTML = html; // made and escaped when the site was built
    link.after(card);
    offerCopies(card);
    link.setAttribute("aria-expanded", "true");
    link.setAttribute("aria-controls", card.id);
    place(link);
  }

  // The clipboard is there on https and on this machine; elsewhere the permalink itself must do.
  function offerCopies(within) {
    if (!navigator.clipboard) return;
    for (const button of within.querySelectorAll("[data-copy]")) button.hidden = false;
  }

  function place(link) {
    const at = link.getClientRects()[0] || link.getBoundingClientRect();
    const frame = (card.offsetParent || document.documentElement).getBoundingClientRect();
    const below = window.innerHeight - at.bottom;
    const over = below < card.offsetHeight + 16 && at.top > below;
    const left = Math.max(12, Math.min(at.left, document.documentElement.clientWidth - card.offsetWidth - 12));
    card.style.left = `${left - frame.left}px`;
    card.style.top = `${(over ? at.top - card.offsetHeight - 4 : at.bottom + 4) - frame.top}px`;
  }

  function later(action) {
    clearTimeout(timer);
    timer = setTimeout(action, DELAY);
  }

  const linkOf = (event) => event.target.closest && event.target.closest("a.citation[data-card]");
  const inside = (node) => node && owner && (owner.contains(node) || (card && card.contains(node)));

  document.addEventListener("pointerover", (event) => {
    if (event.pointerType === "touch") return;
    const link = linkOf(event);
    if (link) later(() => open(link));
    else if (inside(event.target)) clearTimeout(timer);
    else if (owner) later(() => close(false));
    else clearTimeout(timer);
  });
  document.addEventListener("pointerdown", (event) => {
    touched = event.pointerType === "touch";
    if (owner && !inside(event.target)) close(false);
  });
  document.addEventListener("click", (event) => {
    const link = linkOf(event);
    if (link && touched && owner !== link) {
      event.preventDefault();
      open(link);
    }
  });
  document.addEventListener("click", async (event) => {
    const button = event.target.closest && event.target.closest("[data-copy]");
    if (!button) return;
    try {
      await navigator.clipboard.writeText(button.dataset.copy);
      button.textContent = button.dataset.done;
    } catch { /* refused: the permalink stands beside it */ }
  });
  document.addEventListener("focusin", (event) => {
    const link = linkOf(event);
    if (link && link === closedByKey) return;
    closedByKey = null;
    if (link && !touched) open(link);
    else if (owner && !inside(event.target)) close(false);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && card) close(true);
  });
  offerCopies(document); // the card that stands open on a page
})();
