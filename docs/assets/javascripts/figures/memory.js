/* Whether a layout fits, as `tools/bench fits` says it: the account of costlab.layouts.memory, term
 * by term, and the addition of costlab.layouts.stack_memory. Rules are those of costlab.layouts.model. */
(function () {
  "use strict";

  const { element, play, size, answer } = window.figures;
  const sum = (numbers) => numbers.reduce((all, number) => all + number, 0);
  const range = (start, end) => Array.from({ length: Math.max(0, end - start) }, (_, index) => start + index);
  const floor = (whole, parts) => Math.floor(whole / parts);

  /* The settings with what is left to its default, and the layers of each piece. */
  function complete(values) {
    const at = { ...values };
    at.kv_heads ||= at.heads;
    at.head_size ||= floor(at.hidden, at.heads);
    at.ffn ||= 4 * at.hidden;
    at.expert_ffn ||= at.ffn;
    at.query = at.heads * at.head_size;
    at.key = at.kv_heads * at.head_size;
    at.pieces = at.stages * at.chunks;
    at.layers_of_pieces = at.layers_of_stages ? at.layers_of_stages.split(",").map(Number) :
      Array(at.pieces).fill(at.layers / at.pieces);
    at.words = Math.ceil(at.vocabulary / (at.pad * at.tensor)) * at.pad * at.tensor;
    at.shared = at.sequence_parallel ? at.tensor : 1;
    return at;
  }

  /* What is impossible, in the order of `check`: the fields that it is about, and a sentence. */
  function refusals(at, words) {
    const experts = at.expert * at.expert_tensor;
    const share = at.tensor * at.context * at.data;
    const tokens = at.sequence / at.context;
    const say = (key, parts, whole) =>
      words[`not-${key}`].replace("{parts}", parts).replace("{whole}", whole);
    const [most, least] = [Math.max(at.tensor, at.kv_heads), Math.min(at.tensor, at.kv_heads)];
    return [
      [!Number.isInteger(at.hidden / at.heads) && !at.asked_head_size, "head-size", "heads hidden head_size", at.heads, at.hidden],
      [at.heads % at.kv_heads, "kv-heads", "kv_heads heads", at.kv_heads, at.heads],
      [at.experts && at.top_k > at.experts, "top", "top_k experts", at.top_k, at.experts],
      [at.dense_layers > at.layers, "dense", "dense_layers layers", at.dense_layers, at.layers],
      [share % experts, "ranks", "expert expert_tensor tensor context data", experts, share],
      [at.context > 1 && at.sequence % (2 * at.context), "sequence", "sequence context", 2 * at.context, at.sequence],
      [at.sequence_parallel && Math.floor(tokens) % at.tensor, "sequence", "sequence tensor context sequence_parallel", at.tensor, tokens],
      [at.chunks > 1 && at.stages === 1, "chunks", "chunks stages", at.chunks, at.stages],
      [at.pieces > at.layers, "pieces", "stages chunks layers", at.pieces, at.layers],
      [!at.layers_of_stages && at.layers % at.pieces, "layers", "stages chunks layers", at.pieces, at.layers],
      [at.layers_of_stages && (at.layers_of_pieces.length !== at.pieces ||
        sum(at.layers_of_pieces) !== at.layers || Math.min(...at.layers_of_pieces) < 1), "sum", "layers_of_stages layers stages chunks", at.pieces, at.layers],
      [at.heads % at.tensor, "heads", "tensor heads", at.tensor, at.heads],
      [most % least, "groups", "tensor kv_heads", at.tensor, at.kv_heads],
      [at.ffn % at.tensor, "width", "tensor ffn", at.tensor, at.ffn],
      [at.experts ? at.experts % at.expert : experts > 1, "experts", "expert experts", at.expert, at.experts],
      [at.experts && at.expert_ffn % at.expert_tensor, "width", "expert_tensor expert_ffn", at.expert_tensor, at.expert_ffn],
      [at.shared_ffn % at.tensor, "width", "tensor shared_ffn", at.tensor, at.shared_ffn],
      [at.positions && at.sequence > at.positions, "positions", "sequence positions", at.positions, at.sequence],
      [at.chunks > 1 && at.micro_batches % at.stages, "interleaved", "micro_batches stages chunks", at.stages, at.micro_batches],
    ].filter(([refused]) => refused).map(([, key, fields, ...sizes]) => [fields, say(key, ...sizes)]);
  }

  function layersOfStages(at) {
    let start = 0;
    const pieces = at.layers_of_pieces.map((count) => range(start, start += count));
    return range(0, at.stages).map((stage) =>
      pieces.filter((_, piece) => piece % at.stages === stage).flat());
  }

  const hasExperts = (at, layer) => Boolean(at.experts) && layer >= at.dense_layers;

  function bytes(term, at) {
    const letters = {
      S: at.sequence, s: at.sequence / at.context, b: at.micro_batch, h: at.hidden, a: at.heads, q: at.query,
      g: at.key, f: at.ffn, v: at.words, k: at.top_k, e: at.experts, x: at.shared_ffn, y: at.expert_ffn,
    };
    const cut = {
      always: at.tensor, sequence: at.shared, never: 1, expert: at.shared,
      groups: Math.min(at.tensor, at.kv_heads), rows: at.shared / at.expert_tensor,
    }[term.cut];
    return (term.width || at.activation) * [...term.of].reduce((all, letter) => all * letters[letter], term.number) / cut;
  }

  const statistics = (key, norms, at) => ({
    key, number: norms * (at.norm === "layer" ? 2 : 1), of: "sb", cut: "sequence", width: 4,
  });

  /* What a layer keeps of a micro-batch, and what backward makes again. */
  function keptTerms(at, recompute, experts, terms) {
    const whole = (list) => list.map((term) =>
      (at.gathered_inputs && ["qkv-input", "fc1-input"].includes(term.key) ? { ...term, cut: "never" } : term));
    const unfused = at.attention === "unfused";
    let layer = [...terms.attention, statistics("norm-statistics", 2, at), ...(at.dropout ? terms.masks : [])];
    if (unfused) layer = layer.map((term) => (term.key === "key-value" ? terms.repeated[0] : term));
    if (at.unfused_norms) layer.push(...terms.unfusedNorms);
    const core = unfused ? (at.dropout ? terms.core : terms.scores) : terms.fused;
    const network = at.gated ? terms.gated : terms.plain;
    if (experts) {
      layer.push(...terms.experts, ...(at.gated ? terms.gatedExpert : terms.plainExpert));
      if (at.shared_ffn) layer.push(...network.slice(1).map((term) => ({ ...term, of: term.of.replace("f", "x") })));
    } else layer.push(...network);
    layer = whole(layer);
    if (recompute === "full") return [terms.checkpoint, [...layer, ...core]];
    if (recompute === "alternate") {
      return [[...terms.alternate.filter(({ key }) => !at.compiled || key !== "fc2-output"), ...terms.fused],
        [...layer, ...core]];
    }
    if (recompute === "selective" && unfused) return [layer, core];
    return [[...layer, ...core], []];
  }

  /* A rank's parameters of a layer: those that all data ranks share, and its experts'. */
  function layerParameters(at, layer) {
    const [h, t, up] = [at.hidden, at.tensor, at.gated ? 2 : 1];
    const [bias, norm] = [at.bias ? 1 : 0, at.norm === "layer" ? 2 : 1];
    const columns = floor(at.query + floor(2 * at.key * t, Math.min(t, at.kv_heads)), t);
    const pair = (width, ranks) => (up + 1) * h * floor(width, ranks) + (up * floor(width, ranks) + h) * bias;
    const attention = h * columns + floor(at.query, t) * h + 2 * h * norm +
      columns * (at.bias || at.qkv_bias ? 1 : 0) + h * bias + (at.qk_norm ? 2 * at.head_size : 0);
    if (!hasExperts(at, layer)) return [attention + pair(at.ffn, t), 0];
    const router = at.experts * (h + bias) + (at.shared_gate ? h : 0);
    return [attention + router + (at.shared_ffn ? pair(at.shared_ffn, t) : 0),
      floor(at.experts, at.expert) * pair(at.expert_ffn, at.expert_tensor)];
  }

  function parameters(at, stage, layers) {
    const counts = layers.map((layer) => layerParameters(at, layer));
    const words = floor(at.words, at.tensor) * at.hidden;
    const norm = at.hidden * (at.norm === "layer" ? 2 : 1);
    const dense = sum(counts.map(([all]) => all)) +
      (stage === 0 ? words + at.positions * at.hidden + (at.embedding_norm ? norm : 0) : 0) +
      (stage === at.stages - 1 ? norm + (!at.tied || at.stages > 1 ? words : 0) : 0);
    return { dense, experts: sum(counts.map(([, own]) => own)), layers: counts.map(sum) };
  }

  function live(at, stage) {
    const [m, p, v, left] = [at.micro_batches, at.stages, at.chunks, at.stages - stage];
    return v === 1 ? Math.min(m, left) : Math.min(m * v, 2 * (left - 1) + (v - 1) * Math.min(m, p) + 1) / v;
  }

  /* What FSDP's loss and backward need in addition, and what it sends or receives. */
  function sharded(at, stage, { dense, experts, layers }, [loss, made, logits], terms) {
    const outside = dense + experts - sum(layers);
    const largest = Math.max(...layers);
    const root = outside * at.activation;
    const alive = at.micro_batches <= at.stages ? at.chunks : 1;
    const stays = sum(layers) * at.gathered + root + (sum(layers) + outside) * at.gradient / alive;
    const [gathered, backward] = at.stages > 1 ? [stays, stays] : [root + largest * at.gathered,
      1.5 * root + largest * (2 * at.gathered + at.activation + at.gradient)];
    const ofLoss = loss + gathered + (at.tensor > 1 && at.loss_copies > 1 ? logits : 0);
    const again = made + backward + sum(terms.backward.map((term) => bytes(term, at))) +
      (at.context > 1 ? at.context * bytes(terms.repeated[0], at) : 0) +
      (at.gathered_inputs && at.sequence_parallel && at.micro_batch > 1 ? sum(terms.copied.map((term) => bytes(term, at))) : 0);
    const output = logits * at.activation / at.logits;
    const sent = at.stages > 1 ? at.chunks * bytes(terms.checkpoint[0], at) * (at.micro_batches + live(at, stage)) +
      (at.micro_batches - 1) * output : 0;
    return ofLoss > again - logits ? [ofLoss, 0, sent] : [0, again - logits, sent];
  }

  /* The bytes that a rank of a stage holds, by kind and by what holds them. */
  function rankLines(at, stage, layers, terms) {
    const lines = new Map();
    const write = (key, count) => lines.set(key, (lines.get(key) || 0) + count);
    const add = (term, times = 1) => write(`activations/${term.key}`, times * bytes(term, at));
    const held = parameters(at, stage, layers);
    const replicas = at.data * at.context;
    const copies = Math.max(1, floor(at.tensor * replicas, at.expert * at.expert_tensor));
    for (const [kind, width, least] of [["weights", at.weight, 3], ["gradients", at.gradient, 2], ["optimizer", at.optimizer, 1]]) {
      const cut = at.zero >= least;
      write(`${kind}/shared`, width * held.dense / (cut ? replicas : 1));
      write(`${kind}/experts`, width * held.experts / (cut ? copies : 1));
    }
    const alike = new Map();
    layers.forEach((layer, place) => {
      const key = `${place < (at.recompute_layers || layers.length)}/${hasExperts(at, layer)}`;
      alike.set(key, (alike.get(key) || 0) + 1);
    });
    let made = 0;
    for (const [key, number] of alike) {
      const [again, experts] = key.split("/").map((word) => word === "true");
      const [kept, madeAgain] = keptTerms(at, again ? at.recompute : "none", experts, terms);
      kept.forEach((term) => add(term, live(at, stage) * number));
      made = Math.max(made, sum(madeAgain.map((term) => bytes(term, at))));
    }
    if (stage === 0) {
      const times = at.chunks === 1 ? live(at, stage) : Math.min(at.micro_batches, 2 * at.stages);
      [...terms.tokens, ...(at.dropout ? terms.first : [])].forEach((term) => add(term, times));
    }
    let [loss, logits] = [0, 0];
    if (stage === at.stages - 1) {
      const [input, head, scores] = terms.last;
      add(input);
      add(at.gathered_inputs ? { ...head, cut: "never" } : head);
      add(statistics("final-norm-statistics", 1, at));
      logits = bytes({ ...scores, cut: at.whole_logits ? "never" : "always", width: at.logits }, at);
      write("logits/logits", logits);
      loss = logits * (at.activation / at.logits + at.loss_copies);
    }
    let sent = at.stages > 1 ? 2 * bytes(terms.checkpoint[0], at) : 0;
    if (at.zero === 3) [loss, made, sent] = sharded(at, stage, held, [loss, made, logits], terms);
    write("buffers/of-loss", loss);
    write("buffers/of-backward", made);
    write("buffers/sent", sent);
    return lines;
  }

  const whole = (lines) => sum([...lines.values()]);

  const own = []; // runs of one's own: a row of sizes, and the bytes that were measured
  const data = JSON.parse(document.querySelector("#figure-memory script").textContent);
  // The settings that are drawn, which the page has drawn at first, and the layouts that fit.
  let [last, list] = [Object.fromEntries(data.controls.map(({ name, at }) => [name, at])), null];

  /* The solution of a system whose matrix is symmetric and positive. */
  function solve(matrix, right) {
    const rows = matrix.map((row, index) => [...row, right[index]]);
    rows.forEach((pivot, at) => rows.forEach((row, other) => {
      const factor = other === at ? 0 : row[at] / pivot[at];
      if (factor) row.forEach((_, column) => { row[column] -= factor * pivot[column]; });
    }));
    return rows.map((row, at) => row.at(-1) / row[at]);
  }

  /* What the program adds is learned from: a constant, the state's bytes, and the other bytes. */
  function sizesOf(lines, state) {
    const ofState = sum([...lines].filter(([key]) => state.includes(key.split("/")[0])).map(([, count]) => count));
    return [1, ofState, whole(lines) - ofState];
  }

  /* What a rank needs, from what is counted and from own runs: the likely number, and its bounds. */
  function estimate(lines, { guess, spread, residual, deviations, bounds, state }) {
    const [row, counted] = [sizesOf(lines, state), whole(lines)];
    const dot = (other) => sum(row.map((size, at) => size * other[at]));
    const precision = spread.map((one, at) => spread.map((_, other) => (at === other ? one ** -2 : 0)));
    const target = guess.map((one, at) => one * precision[at][at]);
    for (const run of own) {
      const relative = run.row.map((size) => size / run.measured / residual);
      relative.forEach((one, at) => {
        relative.forEach((two, other) => { precision[at][other] += one * two; });
        target[at] += one / residual;
      });
    }
    if (!own.length) return { counted, likely: dot(guess), low: bounds[0] * counted, high: bounds[1] * counted };
    const likely = dot(solve(precision, target));
    const half = deviations * Math.sqrt(dot(solve(precision, row)) + (residual * likely) ** 2);
    return { counted, likely, low: likely - half, high: likely + half };
  }

  /* What a layout's fullest rank holds and needs, and whether that fits; or what is impossible. */
  function judge(values, { words, terms, bias, cards }) {
    const at = complete({ ...values, asked_head_size: values.head_size });
    const refused = refusals(at, words);
    if (refused.length) return { refused };
    const stages = layersOfStages(at).map((layers, stage) => rankLines(at, stage, layers, terms));
    const worst = stages.reduce((most, lines, stage) => (whole(lines) > whole(stages[most]) ? stage : most), 0);
    const [need, room] = [estimate(stages[worst], bias), cards[at.card]];
    const verdict = need.high <= room ? "fits" : need.low > room ? "not-fits" :
      need.likely > room ? "probably-not" : "too-close";
    return { refused, at, worst, lines: stages[worst], need, room, verdict };
  }

  /* Changes that save memory on as many ranks, in the order of their price: those of `fits`. */
  function moves(at) {
    const twice = 2 * at.micro_batches;
    const halved = at.data % 2 === 0 ? ["tensor", "stages", "context"] : [];
    return [
      { attention: "fused" }, { zero: Math.max(at.zero, 1) }, { sequence_parallel: at.tensor > 1 },
      at.recompute === "none" && at.attention === "unfused" && { recompute: "selective" },
      at.micro_batch % 2 === 0 && { micro_batch: at.micro_batch / 2, micro_batches: twice },
      ...halved.map((axis) => !(axis === "tensor" && at.tensor === 8) && !(axis === "stages" && at.layers_of_stages) &&
        { [axis]: 2 * at[axis], data: at.data / 2, micro_batches: twice }),
      at.experts > 0 && at.experts % (2 * at.expert) === 0 && { expert: 2 * at.expert },
      at.zero >= 1 && at.zero < 3 && at.stages === 1 && { zero: at.zero + 1 },
      { recompute: "full" },
    ].filter(Boolean);
  }

  /* The layouts that fit after the fewest changes, cheapest changes first. */
  function nearest(values, data) {
    const key = (settings) => JSON.stringify(settings);
    let front = [values];
    const seen = new Set([key(values)]);
    for (let depth = 0; depth < data.search.deepest; depth++) {
      front = front.flatMap((start) => moves(start).map((change) => ({ ...start, ...change })))
        .filter((changed) => !seen.has(key(changed)) && seen.add(key(changed)));
      const judged = front.map((settings) => [settings, judge(settings, data)]);
      const fitting = judged.filter(([, { verdict }]) => verdict === "fits");
      if (fitting.length) return fitting.slice(0, data.search.shown).map(([settings]) => settings);
      front = judged.filter(([, { refused }]) => !refused.length).map(([settings]) => settings);
    }
    return [];
  }

  /* The bar is as long as the card's memory or the most that may be needed; `added` is a program's. */
  function show(figure, lines, kinds, { scale, room, added, low, high }) {
    const sums = Object.fromEntries(kinds.map((kind) => [kind, 0]));
    for (const [key, count] of lines) sums[key.split("/")[0]] += count;
    for (const row of figure.querySelectorAll("[data-line]")) {
      const count = lines.get(row.dataset.line) || 0;
      const cell = row.querySelector(".play-bytes");
      row.hidden = !count;
      cell.dataset.bytes = count;
      cell.textContent = size(count);
    }
    for (const kind of kinds) {
      figure.querySelector(`[data-sum="${kind}"]`).textContent = size(sums[kind]);
      figure.querySelector(`[data-kind="${kind}"]`).style.width = `${100 * sums[kind] / scale}%`;
    }
    figure.querySelector('[data-kind="added"]').style.width = `${100 * added / scale}%`;
    figure.querySelector(".play-fitting").style.setProperty("--room", `${100 * room / scale}%`);
    Object.assign(figure.querySelector(".play-range").style,
      { left: `${100 * low / scale}%`, width: `${100 * (high - low) / scale}%` });
    figure.querySelector('[data-sum="whole"]').textContent = size(whole(lines));
  }

  function draw(figure, values, data) {
    const { words, spread } = data;
    const { refused, at, worst, lines, need, room, verdict } = judge(values, data);
    if (refused.length) return refused;
    last = values;
    list?.replaceChildren();
    const write = (name, text) => answer(figure, name, text);
    show(figure, lines, data.kinds,
      { scale: Math.max(room, need.high), room, added: need.likely - need.counted, ...need });
    write("verdict", words[verdict]);
    figure.querySelector(".play-answer").dataset.verdict = verdict;
    write("usable", size(room));
    write("room", `${at.card}: ${size(room)}`);
    write("rank", words["of-stage"].replace("{stage}", worst).replace("{stages}", at.stages)
      .replace("{ranks}", at.tensor * at.stages * at.data * at.context));
    write("added", size(need.likely - need.counted));
    write("likely", size(need.likely));
    write("spread", `${size(spread.low * need.likely)} – ${size(spread.high * need.likely)}`);
    write("bounds", words[own.length ? "bounds-own" : "bounds"]
      .replace("{low}", size(need.low)).replace("{high}", size(need.high)));
    return [];
  }

  const turned = (name, values, data) => ({
    model: () => data.models[values.model], program: () => data.programs[values.program],
  }[name] || (() => ({})))();
  const { change, panel } = play("memory", draw, turned);

  /* What a model's config.json says, or a sentence: as costlab.layouts.model_config reads it. */
  function readConfig(text, { words, config: { sizes, families, ignored }, empty }) {
    let keys;
    try { keys = JSON.parse(text); } catch (error) { keys = null; }
    if (keys === null || typeof keys !== "object" || Array.isArray(keys)) return words["not-json"];
    const short = (names) => names.slice(0, 8).map((name) => String(name).slice(0, 40)).join(", ");
    const kind = String(keys.model_type);
    if (!Object.hasOwn(families, kind)) {
      return words["not-type"].replace("{type}", () => short([kind])).replace("{types}", Object.keys(families).join(", "));
    }
    const known = new Set([...Object.values(sizes).flat(), ...ignored]);
    const unknown = Object.keys(keys).filter((key) => !known.has(key)).sort();
    if (unknown.length) return words["not-known"].replace("{keys}", () => short(unknown));
    const settings = { ...empty, ...families[kind] };
    for (const [name, names] of Object.entries(sizes)) {
      const key = names.find((each) => keys[each] !== undefined && keys[each] !== null);
      const needed = ["layers", "hidden", "heads", "vocabulary"].includes(name);
      if (key === undefined && !needed) continue;
      if (!Number.isInteger(keys[key]) || keys[key] < (needed ? 1 : 0)) {
        return words["not-key"].replace("{key}", key || names[0]);
      }
      settings[name] = keys[key];
    }
    const unclear = ["tie_word_embeddings", "mlp_bias", "attention_bias"].find((key) => ![undefined, null, true, false].includes(keys[key]));
    if (unclear) return words["not-switch"].replace("{key}", unclear);
    if (!Number.isInteger(keys.n_positions ?? 1024)) return words["not-key"].replace("{key}", "n_positions");
    const biased = keys.mlp_bias || (keys.attention_bias && families[kind].bias === false);
    const sparse = (keys.decoder_sparse_step ?? 1) !== 1 || [].concat(keys.mlp_only_layers ?? []).length;
    if (biased || sparse) {
      return words["not-counted"].replace("{key}", biased ? "mlp_bias, attention_bias" : "decoder_sparse_step, mlp_only_layers");
    }
    settings.tied = keys.tie_word_embeddings ?? settings.tied;
    if (kind === "gpt2") settings.positions = keys.n_positions ?? 1024;
    if (!settings.experts) Object.assign(settings, { expert: 1, expert_tensor: 1 });
    return settings;
  }

  const { words } = data;
  const field = element("textarea", { rows: 4, spellcheck: false, name: "config" });
  field.setAttribute("aria-label", "config.json");
  const status = element("p", { className: "play-note", hidden: true });
  status.setAttribute("role", "status");
  /* Why the settings are refused: the picture is then of those before, which no button may judge. */
  const refusal = () => {
    const refused = panel.querySelector("[aria-invalid='true']");
    return refused && document.getElementById(refused.getAttribute("aria-describedby")).textContent;
  };
  const button = element("button", { type: "button", textContent: words.read });
  button.addEventListener("click", () => {
    const settings = readConfig(field.value, data);
    if (typeof settings !== "string") change(settings);
    status.hidden = false;
    status.textContent = typeof settings === "string" ? settings :
      [words["was-read"], refusal()].filter(Boolean).join(" ");
  });
  panel.querySelector(".play-share").before(element("details", { className: "play-paste" },
    element("summary", { textContent: words.paste }), field, button, status));
  const margin = document.querySelector("#figure-memory .play-more");
  const block = (title, ...parts) => margin.append(element("div", { className: "play-paste" },
    element("p", {}, element("strong", { textContent: title })), ...parts));
  const press = (text, action) => {
    const pressed = element("button", { type: "button", textContent: text });
    pressed.addEventListener("click", action);
    return pressed;
  };
  const gib = element("input", { type: "number", min: 1, step: "any", name: "measured" });
  gib.setAttribute("aria-label", words["own-gib"]);
  const learned = element("p", { className: "play-note", textContent: words["own-none"] });
  learned.setAttribute("role", "status");
  const recount = () => {
    learned.textContent = own.length ? words["own-runs"].replace("{runs}", own.length) : words["own-none"];
    change({});
  };
  block(words.own, element("p", { className: "play-note", textContent: words["own-gib"] }), gib,
    press(words["own-use"], () => {
      const measured = Number(gib.value) * 2 ** 30;
      const row = sizesOf(judge(last, data).lines, data.bias.state);
      const wrong = refusal() || (!(measured > 0 && measured < 2 ** 50) && words["own-not"]) ||
        (measured < row[1] && words["own-below"].replace("{state}", (row[1] / 2 ** 30).toPrecision(3)));
      if (wrong) { learned.textContent = wrong; return; }
      own.push({ row, measured });
      recount();
    }), press(words["own-forget"], () => { own.length = 0; recount(); }), learned);

  list = element("ul", { className: "play-nearest" });
  list.setAttribute("role", "status");
  const describe = (settings) => Object.keys(settings)
    .filter((name) => settings[name] !== last[name] && !["data", "micro_batches"].includes(name))
    .map((name) => (settings[name] === true ? words[name] :
      `${words[name]}: ${words[`${name}-${settings[name]}`] ?? settings[name]}`)).join(" · ");
  block(words.nearest, press(words["nearest-find"], () => {
    const refused = refusal();
    const isFitting = judge(last, data).verdict === "fits";
    const layouts = refused || isFitting ? [] : nearest(last, data);
    list.replaceChildren(...layouts.map((settings) => element("li", {}, press(describe(settings), () => change(settings)))));
    if (!layouts.length) list.append(element("li", { textContent: refused || words[isFitting ? "nearest-fits" : "nearest-none"] }));
  }), list);
})();
