/* The rows of a layer of experts, as tools/sitelab/figures/dispatch.py counts them: which a rank keeps,
 * drops or fills up, which expert's rank they travel to, and what each rank sends. */
(function () {
  "use strict";

  const { element, play, player, size, answer } = window.figures;
  const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
  const list = (length, make) => Array.from({ length }, (_, index) => make(index));

  function count({ load, ranks, top, factor, pads }, { choices, tokens, row }) {
    const experts = choices[load][top][0].length;
    const limit = factor ? Math.min(tokens, Math.ceil(tokens * top / experts * factor)) : null;
    const cells = choices[load][top].slice(0, ranks).map((counts) => counts.map((chosen) => {
      const kept = limit === null ? chosen : Math.min(chosen, limit);
      return { kept, dropped: chosen - kept, padded: limit !== null && pads ? limit - kept : 0 };
    }));
    const share = experts / ranks;
    const owner = (expert) => Math.floor(expert / share);
    const taken = ({ kept, padded }) => kept + padded;
    const sent = (from) => row * sum(cells.flatMap((of, rank) => of.map((cell, expert) =>
      (owner(expert) !== rank && from(rank, expert) ? taken(cell) : 0))));
    const computed = list(experts, (expert) => sum(cells.map((of) => taken(of[expert]))));
    return {
      cells, limit, share, owner, computed,
      loads: list(ranks, (rank) => sum(computed.slice(rank * share, (rank + 1) * share))),
      out: list(ranks, (rank) => sent((from) => from === rank)),
      back: list(ranks, (rank) => sent((_, expert) => owner(expert) === rank)),
    };
  }

  function draw(figure, at, data) {
    const { words } = data;
    const counted = count(at, data);
    const { cells, share, owner, computed, loads, out, back } = counted;
    const text = (className, textContent) => element("span", { className, textContent });
    const square = (row) => {
      const created = element("i", {});
      created.dataset.row = row;
      return created;
    };
    const squares = ({ kept, padded }, rank, expert) => [
      ...list(kept, () => square(owner(expert) === rank ? "stays" : "travels")),
      ...list(padded, () => square("padded"))];
    const pairs = []; // a row at its token's rank, and the same at its expert's
    const arrived = computed.map(() => []);
    const home = cells.map((of, rank) => of.map((cell, expert) => {
      const here = squares(cell, rank, expert);
      const there = squares(cell, rank, expert);
      arrived[expert].push(...there);
      if (owner(expert) !== rank) pairs.push(...here.map((each, index) => [each, there[index]]));
      const created = element("span", { className: "moe-cell moe-home" }, ...here,
        ...list(cell.dropped, () => square("dropped")));
      created.toggleAttribute("data-own", owner(expert) === rank);
      return created;
    }));
    figure.querySelector(".moe").replaceChildren(
      text("ring-head", words.expert), ...computed.map((_, expert) => text("ring-head", expert)),
      text("moe-sum", words.sends),
      ...home.flatMap((row, rank) => [text("play-stage", `${words.rank} ${rank}`), ...row,
        text("moe-sum", size(out[rank] + back[rank]))]),
      text("play-stage", words.arrived),
      ...arrived.map((rows) => element("span", { className: "moe-cell moe-away" }, ...rows)),
      text("moe-sum", ""), text("play-stage", words.computed),
      ...computed.map((rows) => text("ring-head", rows)), text("moe-sum", ""),
      text("play-stage", words["of-rank"]),
      ...loads.map((_, rank) => {
        const created = text("moe-owner", rank);
        created.style.gridColumn = `span ${share}`;
        return created;
      }), text("moe-sum", ""));
    const all = cells.flat();
    answer(figure, "dropped", sum(all.map(({ dropped }) => dropped)));
    answer(figure, "padded", sum(all.map(({ padded }) => padded)));
    const ratio = (Math.max(...loads) * at.ranks / sum(loads)).toFixed(2);
    answer(figure, "busiest",
      words.times.replace("{rows}", Math.max(...loads)).replace("{ratio}", ratio));
    answer(figure, "sent", size(Math.max(...out.map((bytes, rank) => bytes + back[rank]))));
    answer(figure, "gathered", size(2 * (at.ranks - 1) * data.tokens * data.row));
    const first = shown ? 0 : data.moment;
    shown = { at, data, pairs, ...counted };
    restart(3, first);
    return at.pads && !at.factor ? [["pads", words["pads-nothing"], true]] : [];
  }

  /* Rows travel from their token's rank to their expert's, and results the other way. */
  function carry(pairs, isBack) {
    const places = pairs.map((pair) => pair.map((each) => each.getBoundingClientRect()));
    pairs.forEach((pair, index) => {
      const [from, to] = isBack ? [...places[index]].reverse() : places[index];
      pair[isBack ? 0 : 1].animate(
        { transform: [`translate(${from.left - to.left}px, ${from.top - to.top}px)`, "none"] },
        { duration: 600, easing: "ease-in-out" });
    });
  }

  function show({ at, data, pairs, limit, ...sent }, moment, moves) {
    const { words } = data;
    figure.querySelector(".moe").dataset.moment = moment;
    if (moves && moment > 1) carry(pairs, moment === 3);
    const key = ["choose", limit === null ? "no-limit" : "limit", "out", "back"][moment];
    const bytes = sent[key] || [0];
    return words[key].replace("{ranks}", at.ranks).replace("{tokens}", data.tokens)
      .replace("{top}", at.top).replace("{rows}", at.ranks * data.tokens * at.top)
      .replace("{limit}", limit).replace("{most}", size(Math.max(...bytes)))
      .replace("{least}", size(Math.min(...bytes)));
  }

  let shown = null;
  const figure = document.querySelector('figure[data-figure="dispatch"]');
  const { words } = JSON.parse(figure.querySelector("script").textContent);
  const restart = player(figure, words, (moment, moves) => show(shown, moment, moves));
  play("dispatch", draw, undefined, true);
})();
