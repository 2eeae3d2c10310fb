/* Enlarges a picture: a click, or Enter on it, shows it alone, as large as the window or larger. */
(function () {
  "use strict";

  const spanish = document.documentElement.lang === "es";
  const WORDS = spanish ? ["Ampliar", "Cerrar"] : ["Enlarge", "Close"];
  const PICTURES = ".md-typeset :is(picture, p, figure:not(.play)) > img, .md-typeset svg[role='img']:not(.play svg)";

  const name = (picture) => picture.alt || picture.getAttribute("aria-label") || "";

  function enlarge(picture, label) {
    const dialog = document.createElement("dialog");
    dialog.className = "enlarged md-typeset";
    dialog.setAttribute("aria-label", label);
    const close = Object.assign(document.createElement("button"), { type: "button", textContent: WORDS[1] });
    // A drawn diagram has its colours from the element around it.
    const copy = (picture.closest(".mermaid.drawn") || picture).cloneNode(true);
    if (copy.currentSrc !== undefined) copy.src = picture.currentSrc;
    for (const element of [copy, ...copy.querySelectorAll("[data-enlarge]")]) {
      for (const attribute of ["tabindex", "role", "data-enlarge"]) element.removeAttribute(attribute);
    }
    dialog.append(close, copy);
    dialog.addEventListener("click", () => dialog.close());
    dialog.addEventListener("close", () => { dialog.remove(); picture.focus(); });
    document.body.append(dialog);
    dialog.showModal();
  }

  for (const picture of document.querySelectorAll(PICTURES)) {
    if (picture.closest("a, button, summary")) continue; // it leads somewhere already
    const label = name(picture);
    picture.setAttribute("tabindex", 0);
    picture.setAttribute("role", "button");
    picture.setAttribute("aria-label", `${WORDS[0]}: ${label}`);
    picture.dataset.enlarge = "";
    picture.addEventListener("click", () => enlarge(picture, label));
    picture.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      enlarge(picture, label);
    });
  }
})();
