/* The causal square of a ring, cut in runs and in zig-zag, as tools/sitelab/figures/zigzag.py counts
 * it: which rank computes which cell in which step, and who waits. */
(function () {
  "use strict";

  const { element, play, player, answer } = window.figures;
  const list = (length, make) => Array.from({ length }, (_, index) => make(index));

  const owner = (cut, ranks, chunk) =>
    (cut === "runs" ? Math.floor(chunk / 2) : Math.min(chunk, 2 * ranks - 1 - chunk));

  /* The whole square, row by row; a cell of future keys has no work. */
  function listCells(cut, ranks) {
    return list(4 * ranks * ranks, (index) => {
      const [row, column] = [Math.floor(index / (2 * ranks)), index % (2 * ranks)];
      const rank = owner(cut, ranks, row);
      const step = (rank - owner(cut, ranks, column) + ranks) % ranks;
      return { rank, step, work: column < row ? 1 : column === row ? 0.5 : 0 };
    });
  }

  function countWork(cells, ranks) {
    const work = list(ranks, () => list(ranks, () => 0));
    for (const cell of cells) work[cell.rank][cell.step] += cell.work;
    return work;
  }

  /* When each step begins, and when the last one ends: a step waits for the slowest rank. */
  const startSteps = (work) => work.reduce((starts, _, step) =>
    [...starts, starts[step] + Math.max(...work.map((steps) => steps[step]))], [0]);

  const when = (step, now) => (step === now ? "now" : step < now ? "before" : "later");

  function drawSquare(square, cells, now) {
    square.style.setProperty("--chunks", Math.sqrt(cells.length));
    square.replaceChildren(...cells.map(({ rank, step, work }) => {
      const cell = element("span", { className: "causal-cell" });
      if (!work) return cell;
      cell.append(element("i", { textContent: rank }));
      cell.dataset.when = when(step, now);
      cell.toggleAttribute("data-half", work < 1);
      return cell;
    }));
  }

  function drawTracks(tracks, work, starts, end, now) {
    const whole = starts.at(-1);
    tracks.replaceChildren(...work.flatMap((steps, rank) => {
      const boxes = steps.flatMap((count, step) => {
        if (!count || step > now) return [];
        const box = element("span", { className: "play-box play-f" },
          element("i", { textContent: step }));
        box.style.left = `${100 * starts[step] / whole}%`;
        box.style.width = `${100 * count / whole}%`;
        box.toggleAttribute("data-now", step === now);
        return [box];
      });
      const track = element("span", { className: "play-track" }, ...boxes);
      track.style.width = `${100 * whole / end}%`;
      const sum = steps.slice(0, now + 1).reduce((all, count) => all + count, 0);
      return [element("span", { className: "play-stage", textContent: rank }),
        element("span", {}, track), element("span", { className: "causal-sum", textContent: sum })];
    }));
  }

  function show(figure, { ranks }, { cuts, words }, now) {
    const cells = cuts.map((cut) => listCells(cut, ranks));
    const works = cells.map((all) => countWork(all, ranks));
    const starts = works.map(startSteps);
    const end = Math.max(...starts.map((times) => times.at(-1)));
    const counts = cuts.map((cut, index) => {
      const part = figure.querySelector(`[data-cut="${cut}"]`);
      drawSquare(part.querySelector(".causal-square"), cells[index], now);
      drawTracks(part.querySelector(".causal-tracks"), works[index], starts[index], end, now);
      const whole = starts[index].at(-1);
      const mean = works[index].flat().reduce((all, count) => all + count, 0) / ranks;
      answer(figure, cut, words.takes.replace("{cells}", whole)
        .replace("{ratio}", (whole / mean).toFixed(2)));
      const byRank = works[index].map((steps) => steps[now]);
      const [low, high] = [Math.min(...byRank), Math.max(...byRank)];
      return low === high ? low : words["from-to"].replace("{low}", low).replace("{high}", high);
    });
    return words[now ? "ring-step" : "own-step"].replaceAll("{step}", now)
      .replace("{last}", ranks - 1).replace("{runs}", counts[0]).replace("{zigzag}", counts[1]);
  }

  let shown = null;
  const figure = document.querySelector('figure[data-figure="zigzag"]');
  const { words } = JSON.parse(figure.querySelector("script").textContent);
  const restart = player(figure, words, (step) => show(figure, ...shown, step));
  play("zigzag", (_, at, data) => {
    shown = [at, data];
    restart(at.ranks - 1, at.ranks - 1);
  }, undefined, true);
})();
