// Parses one diagram with mermaid and says in JSON what came of it: `parseDiagram`, `takeAnswer`.
"use strict";
(() => {
  const CONFIG = { startOnLoad: false, securityLevel: "strict", logLevel: "fatal" };
  const TYPES = {
    "flowchart-v2": "flowchart", "flowchart-elk": "flowchart", classDiagram: "class",
    stateDiagram: "state", quadrantChart: "quadrant",
  };
  const FRONT_MATTER = /^([^\S\n\r]*)-{3}\s*[\n\r](.*?)[\n\r]\1-{3}\s*[\n\r]+/s;
  const SHOWN = 6;
  const TRIES = 200;
  const SPENT = /out of memory|call stack|stack overflow|interrupted/i;
  const api = mermaid.mermaidAPI;
  mermaid.initialize(CONFIG);
  // Taken now, so that no diagram can change what "unchanged" means.
  const { getOwnPropertyNames } = Object;
  const PRISTINE = [Object, Array, String, Function, Map, Promise].map(
    (one) => [one.prototype, getOwnPropertyNames(one.prototype).length],
  );
  const clean = () => PRISTINE.every(([one, count]) => getOwnPropertyNames(one).length === count);

  // mermaid takes front matter, directives and comments away before it counts lines. The same cuts
  // here, keeping for every character that is left the line it stood on.
  const lineTable = (text) => {
    let left = text;
    let lines = [];
    let line = 1;
    for (const letter of left.split("")) {
      lines.push(line);
      if (letter === "\n") line += 1;
    }
    const cut = (pattern) => {
      const kept = [];
      let words = "";
      let from = 0;
      for (const match of left.matchAll(pattern)) {
        words += left.slice(from, match.index);
        kept.push(...lines.slice(from, match.index));
        from = match.index + match[0].length;
      }
      lines = kept.concat(lines.slice(from));
      left = words + left.slice(from);
    };
    cut(new RegExp(FRONT_MATTER.source, "gs"));
    cut(/%{2}{\s*(?:(\w+)\s*:|(\w+))\s*(?:(\w+)|((?:(?!}%{2}).|\r?\n)*))?\s*(?:}%{2})?/gi);
    cut(/^\s*%%(?!{)[^\n]+\n?/gm);
    cut(/^\s+/g);
    const rows = left.split("\n");
    const table = [];
    let at = 0;
    for (const row of rows) {
      table.push({ line: lines[at] ?? line, blank: !row.trim() });
      at += row.length + 1;
    }
    return table;
  };

  // `number` counts in what mermaid saw; the answer counts in what the author wrote.
  const original = (number, text, type) => {
    let table = lineTable(text);
    // Sankey's own reader closes up blank lines before it counts.
    if (type === "sankey") table = table.filter((row) => !row.blank);
    const drawn = table.filter((row) => !row.blank);
    const last = drawn.length ? drawn[drawn.length - 1].line : 1;
    const row = table[Math.max(number, 1) - 1];
    return Math.min(row ? row.line : last, last);
  };

  const typeOf = (text) => {
    try {
      const name = mermaid.detectType(text);
      return TYPES[name] || name;
    } catch {
      return "";
    }
  };

  const told = (expected) => {
    const names = expected.map((name) => name.replace(/^'|'$/g, "")).filter((name) => name !== "1");
    const more = names.length - SHOWN;
    return more > 1 ? `${names.slice(0, SHOWN).join(", ")} or ${more} others` : names.join(", ");
  };

  // jison's grammars (flowchart, sequence, gantt …) and their hash of facts.
  const fromJison = (fault) => {
    const { hash } = fault;
    const first = String(fault.message).split("\n");
    if (!hash || !/^(Parse|Lexical) error on line/.test(first[0])) return null;
    const at = Number(hash.line);
    if (!Number.isInteger(at)) return null;
    const met = String(hash.text ?? "");
    // The lexer counts to the end of what it met; the fault is where that begins.
    const number = at + 1 - (met.match(/\n/g) || []).length;
    if (!hash.expected) {
      // Under the second line a caret points at what was not understood.
      const rest = (first[1] ?? "").slice((first[2] ?? "").indexOf("^")).trim();
      return { number, error: `found ${rest ? `\`${rest}\`` : "text"}, which no rule of this diagram type reads` };
    }
    const ends = hash.token === 1 || /^EOF/.test(String(hash.token));
    const what = ends ? "the end of the diagram" : met.trim() ? `\`${met.trim()}\`` : "the end of the line";
    const token = ends || !met.trim() || met.trim() === hash.token ? "" : ` (${hash.token})`;
    return { number, error: `found ${what}${token}, expected ${told(hash.expected)}` };
  };

  // langium's grammars (pie, packet, gitGraph …).
  const fromLangium = (fault) => {
    const { result } = fault;
    if (!result) return null;
    const [lexer] = result.lexerErrors || [];
    const [parser] = result.parserErrors || [];
    const one = lexer || parser;
    if (!one) return null;
    const found = lexer ? lexer.line : parser.token?.startLine;
    // NaN is the end of the text.
    const number = Number.isInteger(found) ? found : Number.MAX_SAFE_INTEGER;
    return { number, error: String(one.message) };
  };

  // Some faults (a gantt date, say) come to light only when the database is asked.
  const read = async (text) => {
    const diagram = await api.getDiagramFromText(text);
    const type = TYPES[diagram.type] || diagram.type;
    return { ok: true, type, labels: standIn.labels(type, diagram.db, titleOf(text)) };
  };

  // A fault that mermaid found in what the diagram means has no line: look for the first line
  // without which it does not arise.
  const search = async (text, message) => {
    const lines = text.split("\n");
    let low = 1;
    let high = lines.length;
    if (high > TRIES) return null;
    while (low < high) {
      const middle = (low + high) >> 1;
      const again = await read(lines.slice(0, middle).join("\n") + "\n").then(
        () => false,
        (fault) => String(fault.message) === message,
      );
      if (again) high = middle;
      else low = middle + 1;
    }
    while (low > 1 && !lines[low - 1].trim()) low -= 1;
    return low;
  };

  const refused = async (fault, text) => {
    const message = String(fault?.message ?? fault);
    const type = typeOf(text);
    if (SPENT.test(message)) throw fault;
    if (fault?.name === "UnknownDiagramError") {
      const [word] = (/^\s*([^\s;:{]+)/.exec(text.split("\n")[original(1, text, "") - 1] ?? "") || ["", ""]).slice(1);
      const known = word === "zenuml" ? "this diagram type can't be checked: zenuml is not part of mermaid" : "";
      const met = word && !word.startsWith("%%") ? `found \`${word}\`` : "found nothing to draw";
      return { line: original(1, text, ""), error: known || `${met}, expected a diagram type such as flowchart or gantt` };
    }
    const known = fromJison(fault) || fromLangium(fault);
    if (known) return { line: original(known.number, text, type), error: known.error };
    if (fault instanceof TypeError || fault instanceof ReferenceError) {
      return { line: await search(text, message), error: `this diagram can't be checked: mermaid failed on it (${message})` };
    }
    return { line: await search(text, message), error: message.split("\n")[0] };
  };

  const oneLine = (text) => {
    const flat = String(text).replace(/\s+/g, " ").trim();
    return flat.length > 300 ? `${flat.slice(0, 299)}…` : flat;
  };

  const titleOf = (text) => {
    const front = FRONT_MATTER.exec(text);
    const title = front && /^[ \t]*title[ \t]*:[ \t]*(.+)$/m.exec(front[2]);
    return title ? title[1].trim().replace(/^(["'])(.*)\1$/, "$2") : "";
  };

  const parsed = async (text) => {
    try {
      // Settings of its own are read as a page would read them, then forgotten.
      if (/%%\{|^\s*---/.test(text)) await api.parse(text);
      return await read(text);
    } catch (fault) {
      const { line, error } = await refused(fault, text);
      return { ok: false, type: typeOf(text), error: oneLine(error), line };
    } finally {
      api.reset();
    }
  };

  let answer = null;
  globalThis.parseDiagram = (text) => {
    answer = null;
    api.reset();
    const said = (one, settled) => {
      answer = JSON.stringify({ parsed: one, clean: clean() && settled });
    };
    parsed(text.replace(/\r\n?/g, "\n")).then(
      (one) => said(one, true),
      (fault) => {
        const message = String(fault?.message);
        const error = /stack/i.test(message)
          ? "it is nested too deeply for mermaid to parse"
          : /memory/i.test(message)
            ? "it takes more memory to parse than a diagram may have"
            : `this diagram can't be checked: ${oneLine(fault)}`;
        said({ ok: false, error, settled: false }, false);
      },
    );
  };
  globalThis.takeAnswer = () => answer;
})();
