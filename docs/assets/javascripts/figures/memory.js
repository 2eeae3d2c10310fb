/* The account of a rank's memory, as shardlab.proofs.formulas.memory makes it: same terms, same sums. */
(function () {
  "use strict";

  const { element, play, size } = window.figures;
  const KINDS = ["weight", "gradient", "optimizer", "activation"];

  function elements(term, at) {
    const letters = {
      l: at.layers / at.stages, h: at.hidden, a: at.heads, s: at.sequence, b: at.micro_batch,
      v: at.vocabulary, e: at.experts, k: at.top_k, f: at.ffn, d: at.hidden / at.heads,
      g: at.hidden * at.groups / at.heads,
    };
    const cut = {
      always: at.tensor, sequence: at.sequence_parallel ? at.tensor : 1, expert: at.expert, never: 1,
    }[term.cut];
    return [...term.of].reduce((all, letter) => all * letters[letter], term.number) / cut;
  }

  function state({ terms, recipes }, at) {
    const layers = at.experts ? terms.expertParameters : terms.denseParameters;
    const [everywhere, last] = at.ffn ? [terms.llamaParameters, terms.llamaLast] :
      [[...terms.parameters, ...layers], terms.finalNorm];
    const parts = [...everywhere, ...(at.stages === 1 ? last : [])];
    const count = (ofExperts) => parts.filter(({ cut }) => (cut === "expert") === ofExperts)
      .reduce((sum, term) => sum + elements(term, at), 0);
    const replicas = at.data * at.context;
    const rows = [
      [at.ffn ? "gated" : "state", count(false), replicas], ["experts", count(true), at.tensor * replicas / at.expert],
    ];
    return [["weight", 3], ["gradient", 2], ["optimizer", 1]].flatMap(([kind, stage]) =>
      rows.map(([row, parameters, copies]) => [`${kind}/${row}`,
        recipes[at.recipe][kind] * parameters / (at.zero >= stage ? copies : 1)]));
  }

  /* Of how many micro-batches the first stage holds all its layers, and the first chunk. */
  function alive({ micro_batches: m, stages: p, chunks: v }) {
    if (v === 1 || p === 1) return [Math.min(m, p), Math.min(m, p)];
    return [Math.min(m * v, 2 * (p - 1) + (v - 1) * Math.min(m, p) + 1) / v, Math.min(m, 2 * p)];
  }

  function activations({ terms, recipes }, at) {
    const [live, first] = alive(at);
    const layers = live * at.layers / at.stages;
    const layer = at.ffn ? [...terms.llamaAttention, ...terms.gated] :
      [...terms.attention, ...(at.experts ? terms.experts : terms.dense)];
    const core = at.ffn ? terms.llamaCore : terms.core;
    const bytes = (term, times) =>
      (term.width || recipes[at.recipe].activation) * elements(term, at) * times / at.context;
    const [stored, recomputed] = {
      none: [[...layer, ...core], []],
      selective: [layer, core],
      full: [terms.checkpoint, [...layer, ...core]],
    }[at.recompute];
    const storedOnce = [...(at.ffn ? [] : terms.first), ...(at.stages === 1 ? terms.last : [])];
    const key = (term) => (at.ffn && term.key === "fc2-input" ? "gated-fc2-input" : term.key);
    const line = (times) => (term) => [`activation/${key(term)}`, bytes(term, times)];
    const recomputedBytes = recomputed.reduce((sum, term) => sum + bytes(term, 1), 0);
    return [
      ...stored.map(line(layers)), ["activation/recomputed", recomputedBytes],
      ...storedOnce.map(line(first)),
    ];
  }

  function warnings(at, words) {
    const ranks = at.tensor * at.context * at.data;
    const pieces = at.stages * at.chunks;
    const cut = at.context * (at.sequence_parallel ? at.tensor : 1);
    const uneven = [
      [at.heads, at.tensor, words["not-heads"]], [at.layers, pieces, words["not-layers"]],
      [at.sequence, cut, words["not-sequence"]],
      ...(at.experts ? [
        [at.experts, at.expert, words["not-experts"]], [ranks, at.expert, words["not-ranks"]],
      ] : []),
    ];
    const refused = [
      [at.chunks > 1 && (at.stages === 1 || (at.micro_batches > at.stages &&
        at.micro_batches % at.stages)), words["not-interleaved"]],
      [at.experts && at.tensor > 1 && !at.sequence_parallel, words["not-routed"]],
      [at.experts && at.top_k > at.experts, words["not-top"]],
      [at.ffn && at.experts, words["not-gated-experts"]],
      [at.ffn && (!at.groups || at.heads % at.groups), words["not-groups"]],
    ];
    return [
      ...uneven.filter(([whole, parts]) => whole % parts).map(([whole, parts, text]) =>
        text.replace("{parts}", parts).replace("{whole}", whole)),
      ...refused.filter(([wrong]) => wrong).map(([, text]) => text),
    ];
  }

  function draw(figure, at, data) {
    const lines = new Map([...state(data, at), ...activations(data, at)]);
    const sums = Object.fromEntries(KINDS.map((kind) => [kind, 0]));
    for (const [key, bytes] of lines) sums[key.split("/")[0]] += bytes;
    const whole = KINDS.reduce((sum, kind) => sum + sums[kind], 0);
    for (const row of figure.querySelectorAll("[data-line]")) {
      const bytes = lines.get(row.dataset.line) || 0;
      const cell = row.querySelector(".play-bytes");
      row.hidden = !bytes;
      cell.dataset.bytes = bytes;
      cell.textContent = size(bytes);
    }
    for (const kind of KINDS) {
      figure.querySelector(`[data-sum="${kind}"]`).textContent = size(sums[kind]);
      figure.querySelector(`[data-kind="${kind}"]`).style.width = `${100 * sums[kind] / whole}%`;
    }
    figure.querySelector('[data-sum="whole"]').textContent = size(whole);
    const warning = figure.querySelector(".play-warning");
    warning.textContent = warnings(at, data.words).join(" ");
    warning.hidden = !warning.textContent;
  }

  const turned = (name, values, data) => (name === "model" ? data.models[values.model] : {});
  const { change, panel } = play("memory", draw, turned);

  /* What this account has of a model's config.json, or a sentence: it counts GPT-2's layers and
   * Llama's, and no others. */
  function readConfig(text, words) {
    let config;
    try { config = JSON.parse(text); } catch (error) { config = null; }
    if (config === null || typeof config !== "object") return words["not-json"];
    const old = config.model_type === "gpt2";
    if (!old && !["llama", "mistral"].includes(config.model_type)) {
      return words["not-type"].replace("{type}", String(config.model_type).slice(0, 40));
    }
    const names = old ? { layers: "n_layer", hidden: "n_embd", heads: "n_head",
      vocabulary: "vocab_size", sequence: "n_positions" } : { layers: "num_hidden_layers",
      hidden: "hidden_size", heads: "num_attention_heads", vocabulary: "vocab_size",
      ffn: "intermediate_size", groups: "num_key_value_heads" };
    const sizes = { experts: 0, ffn: 0, groups: 0 };
    for (const [name, key] of Object.entries(names)) {
      const value = config[key] ?? (name === "groups" ? config.num_attention_heads : undefined);
      if (!Number.isInteger(value) || value < 1) return words["not-key"].replace("{key}", key);
      sizes[name] = value;
    }
    const { hidden, heads } = sizes;
    const others = old ? {
      n_inner: (config.n_inner ?? 4 * hidden) !== 4 * hidden,
      activation_function: !/^gelu/.test(config.activation_function ?? "gelu_new"),
      tie_word_embeddings: config.tie_word_embeddings === false,
    } : {
      head_dim: (config.head_dim ?? hidden / heads) * heads !== hidden,
      hidden_act: (config.hidden_act ?? "silu") !== "silu",
      attention_bias: config.attention_bias, mlp_bias: config.mlp_bias,
      tie_word_embeddings: config.tie_word_embeddings, sliding_window: config.sliding_window,
    };
    const other = Object.keys(others).find((key) => others[key]);
    return other ? words["not-counted"].replace("{key}", other) : sizes;
  }

  const { words } = JSON.parse(document.querySelector("#figure-memory script").textContent);
  const field = element("textarea", { rows: 4, spellcheck: false, name: "config" });
  field.setAttribute("aria-label", "config.json");
  const status = element("p", { className: "play-note", hidden: true });
  status.setAttribute("role", "status");
  const button = element("button", { type: "button", textContent: words.read });
  button.addEventListener("click", () => {
    const sizes = readConfig(field.value, words);
    if (typeof sizes !== "string") change(sizes);
    status.hidden = false;
    status.textContent = typeof sizes === "string" ? sizes : words["was-read"];
  });
  panel.append(element("details", { className: "play-paste" },
    element("summary", { textContent: words.paste }), field, button, status));
})();
