/* Opens the card of a citation, or of a term of the glossary, on hover, focus or tap; Escape, or
 * leaving, closes it.
 *
 * A citation's card is a piece of the site, fetched when it is first asked for; a term's card is its
 * row of the glossary. A mouse's click follows the link; a tap opens the card first, and the card
 * holds the permalink, or the link to the page that introduces the term. */
(function () {
  "use strict";

  const DELAY = 150; // milliseconds: a pointer that only passes opens nothing
  const OPENS = "a.citation[data-card], .md-content a[href*='reference/glossary/#']";
  const MARGIN = 12; // pixels between a card and the window's edges
  const GAP = 4; // pixels between a card and its link
  const answers = new Map();
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
    if (!answers.has(address)) {
      const answer = fetch(address).then((response) => {
        if (!response.ok) throw new Error(response.status);
        return response.text();
      });
      answer.catch(() => answers.delete(address));
      answers.set(address, answer);
    }
    return answers.get(address);
  }

  /* Return the card that a link opens, without its place. */
  async function make(link) {
    const made = document.createElement("span");
    if (link.dataset.card) {
      made.className = "citation-card";
      made.dataset.mark = link.dataset.mark || ""; // the page's style hides a card without its mark
      made.setAttribute("aria-label", link.title);
      made.innerHTML = await text(link.dataset.card); // made and escaped when the site was built
      return made;
    }
    const [address, name] = link.href.split("#");
    const glossary = new DOMParser().parseFromString(await text(address), "text/html");
    const cells = glossary.getElementById(decodeURIComponent(name)).closest("tr").cells;
    const [term, meaning, page] = [...cells].map((cell) => cell.textContent.trim());
    const title = Object.assign(document.createElement("b"), { textContent: term });
    const lead = cells[2].querySelector("a").getAttribute("href");
    const more = Object.assign(document.createElement("a"), { href: new URL(lead, address), textContent: page });
    made.className = "term-card";
    made.setAttribute("aria-label", term);
    made.append(title, ` ${meaning} `, more);
    return made;
  }

  async function open(link) {
    if (owner === link) return;
    close(false);
    owner = link;
    let made;
    try {
      made = await make(link);
    } catch {
      if (owner === link) owner = null;
      return; // the link still works
    }
    if (owner !== link) return;
    card = made;
    card.id = "citation-card";
    card.setAttribute("role", "dialog");
    card.style.cssText = MEASURED; // else it would widen the page until it is placed
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

  // A card that is being measured takes no place on the page: a telephone shows a page that has
  // become wider in a larger window, whose height is not the one that the reader looks at.
  const MEASURED = "position: fixed; left: 0; top: 0; visibility: hidden";
  const EMPTY = "left: 0; top: 0; width: 0; height: 0; padding: 0; border: 0";

  // The part of the page that can be seen, also when it is enlarged by two fingers.
  function visible() {
    const view = window.visualViewport;
    const header = document.querySelector(".md-header");
    const covered = header ? header.getBoundingClientRect().bottom : 0;
    return {
      left: view.offsetLeft + MARGIN,
      right: view.offsetLeft + view.width - MARGIN,
      top: Math.max(view.offsetTop, covered) + MARGIN,
      bottom: view.offsetTop + view.height - MARGIN,
    };
  }

  // Below the link, or above it where there is more room; never larger than that room.
  function place(link) {
    const view = visible();
    const at = link.getBoundingClientRect();
    const below = view.bottom - at.bottom - GAP;
    const above = at.top - GAP - view.top;
    const maxWidth = `${view.right - view.left}px`;
    card.style.cssText = MEASURED;
    card.style.maxWidth = maxWidth;
    const over = below < card.offsetHeight && above > below;
    card.style.maxHeight = `min(26rem, 70vh, ${Math.max(0, over ? above : below)}px)`;
    const maxHeight = card.style.maxHeight;
    const { offsetWidth: width, offsetHeight: height } = card;
    card.style.cssText = EMPTY;
    const origin = card.getBoundingClientRect(); // where 0, 0 of its frame is
    const left = Math.max(view.left, Math.min(at.left, view.right - width));
    const beside = over ? at.top - GAP - height : at.bottom + GAP;
    const top = Math.max(view.top, Math.min(beside, view.bottom - height));
    card.style.cssText = "";
    Object.assign(card.style, {
      maxWidth, maxHeight, left: `${left - origin.left}px`, top: `${top - origin.top}px`,
    });
  }

  function later(action) {
    clearTimeout(timer);
    timer = setTimeout(action, DELAY);
  }

  const linkOf = (event) => event.target.closest && event.target.closest(OPENS);
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
  window.addEventListener("resize", () => {
    if (card) place(owner);
  });
  offerCopies(document); // the card that stands open on a page
})();
