/* A collective step by step, as tools/sitelab/figures/ring.py counts it: who sends which piece, and
 * whose numbers (a bit a rank) each piece then holds. */
(function () {
  "use strict";

  const { element, play, player, size, answer } = window.figures;
  const list = (length, make) => Array.from({ length }, (_, index) => make(index));

  const countSteps = (op, ranks) => (op === "all_reduce" ? 2 : 1) * (ranks - 1);
  const adds = (op, ranks, step) => ["all_reduce", "reduce_scatter"].includes(op) && step < ranks;

  function listSends(op, ranks, step) {
    return list(ranks, (source) => {
      if (op === "all_to_all") {
        const target = (source + step) % ranks;
        return { source, target, piece: target, place: source };
      }
      const first = op === "all_gather" ? 1 : 0;
      const piece = (source - step + first + 2 * ranks) % ranks;
      return { source, target: (source + 1) % ranks, piece, place: piece };
    });
  }

  function hold(op, ranks, last, payload) {
    const held = list(ranks, (rank) => list(ranks, (piece) =>
      (op !== "all_gather" || piece === rank ? 1 << rank : 0)));
    const sent = list(ranks, () => 0);
    for (let step = 1; step <= last; step += 1) {
      const moving = listSends(op, ranks, step).map((send) => {
        const moves = op === "all_to_all" ? 1 << send.source : held[send.source][send.piece];
        if (op === "all_to_all" || adds(op, ranks, step)) held[send.source][send.piece] &= ~moves;
        return { ...send, moves };
      });
      for (const { source, target, place, moves } of moving) {
        held[target][place] |= moves;
        sent[source] += payload / ranks;
      }
    }
    return { held, sent };
  }

  function drawPiece(mask, ranks, isPartial) {
    const piece = element("span", { className: `ring-piece${isPartial ? " play-partial" : ""}`,
      hidden: !mask }, ...list(ranks, () => element("i", {})));
    [...piece.children].forEach((slot, rank) => slot.toggleAttribute("data-in", mask >> rank & 1));
    return piece;
  }

  /* Carries a copy of each sent piece from its sender's cell to its receiver's. */
  function carry(cells, sends, { op, ranks }, before, isPartial) {
    for (const { source, target, piece, place } of sends) {
      const from = cells[source][piece].getBoundingClientRect();
      const to = cells[target][place].getBoundingClientRect();
      const mask = op === "all_to_all" ? 1 << source : before[source][piece];
      const copy = drawPiece(mask, ranks, isPartial(mask));
      copy.classList.add("ring-moves");
      const shift = `translate(${from.left - to.left}px, ${from.top - to.top}px)`;
      cells[target][place].firstChild.animate({ opacity: [0, 0, 1] }, 700);
      cells[target][place].append(copy);
      copy.animate({ transform: [shift, "none"] }, { duration: 600, easing: "ease-in-out" })
        .finished.finally(() => copy.remove());
    }
  }

  function show(figure, at, { payload, wire, words }, step, moves) {
    const { op, ranks } = at;
    const { held, sent } = hold(op, ranks, step, payload);
    const sends = step ? listSends(op, ranks, step) : [];
    const reduces = ["all_reduce", "reduce_scatter"].includes(op);
    const isPartial = (mask) => reduces && mask !== 2 ** ranks - 1;
    figure.querySelector(".play-legend .play-partial").parentElement.hidden = !reduces;
    const cells = held.map((row) => row.map((mask) =>
      element("span", { className: "ring-cell" },
        drawPiece(mask, ranks, isPartial(mask)))));
    const { held: final } = hold(op, ranks, countSteps(op, ranks), payload);
    cells.forEach((row, rank) => row.forEach((cell, piece) => {
      const mask = held[rank][piece];
      cell.toggleAttribute("data-complete", mask && mask === final[rank][piece]);
    }));
    const back = element("span", { className: "ring-back" }); // from the last rank to the first
    back.hidden = op === "all_to_all" || !step;
    for (const { source, target, piece, place } of sends) {
      cells[source][piece].dataset.leaves = op === "all_to_all" ? "far" : target ? "" : "back";
      cells[target][place].dataset.arrives = "";
      if (!target) back.style.setProperty("--piece", piece);
    }
    const head = (textContent) => element("span", { className: "ring-head", textContent });
    const picture = figure.querySelector(".ring");
    picture.style.setProperty("--ranks", ranks);
    picture.replaceChildren(head(words.piece), ...list(ranks, head), head(words.bytes),
      ...cells.flatMap((row, rank) => [
        element("span", { className: "play-stage", textContent: `${words.rank} ${rank}` }), ...row,
        element("span", { className: "ring-sent", textContent: size(sent[rank]) })]), back);
    if (moves) carry(cells, sends, at, hold(op, ranks, step - 1, payload).held, isPartial);
    const [factor, offset] = wire[op];
    answer(figure, "sent", size(Math.max(...sent)));
    answer(figure, "formula",
      `${words[`formula-${factor}`]} = ${size(payload * (factor * ranks - offset) / ranks)}`);
    const key = op === "all_to_all" ? "far" : adds(op, ranks, step) ? "adds" : "keeps";
    return (step ? words[key] : words.start).replaceAll("{step}", step).replace("{ranks}", ranks)
      .replace("{last}", countSteps(op, ranks)).replace("{size}", size(step ? payload / ranks : payload));
  }

  let shown = null;
  const figure = document.querySelector('figure[data-figure="ring"]');
  const { words } = JSON.parse(figure.querySelector("script").textContent);
  const restart = player(figure, words, (step, moves) => show(figure, ...shown, step, moves));
  play("ring", (_, at, data) => {
    const first = shown ? 0 : data.step;
    shown = [at, data];
    restart(countSteps(at.op, at.ranks), Math.min(first, countSteps(at.op, at.ranks)));
  }, undefined, true);
})();
