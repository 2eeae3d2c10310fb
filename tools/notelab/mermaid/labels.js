// What a reader sees drawn of a parsed diagram, from mermaid's own database of it.
"use strict";
(() => {
  const list = (values) => (values instanceof Map ? [...values.values()] : Array.isArray(values) ? values : []);
  const pick = (values, ...keys) => list(values).flatMap((value) => keys.map((key) => value[key]));

  // Layout data: what the newer kinds hand to the renderer.
  const laidOut = (...keys) => (db) => {
    const { nodes, edges } = db.getData();
    return [...marked(nodes, "label", ...keys), ...marked(edges, "label")];
  };
  const marked = (values, ...keys) =>
    list(values).flatMap((value) =>
      keys.flatMap((key) => [value[key]].flat()).map((text) =>
        value.labelType === "markdown" ? unmarked(text) : text,
      ),
    );
  const unmarked = (text) =>
    typeof text !== "string"
      ? text
      : text
          .replace(/(\*\*|__)(?=\S)(.+?)\1/gs, "$2")
          .replace(/(?<![\w*])\*(?=\S)([^*]+)\*(?![\w*])/g, "$1")
          .replace(/(?<!\w)_(?=\S)([^_]+)_(?!\w)/g, "$1");

  const sequence = (db) => [
    ...pick(db.getBoxes(), "name"),
    ...pick(db.getActors(), "description"),
    // A rectangle's "message" is its colour.
    ...pick(list(db.getMessages()).filter((one) => one.type !== db.LINETYPE.RECT_START), "message"),
  ];

  const classes = (db) => [
    ...pick(db.getNamespaces(), "label"),
    ...list(db.getClasses()).flatMap((one) => [
      one.label,
      ...one.annotations,
      ...pick([...one.members, ...one.methods], "text").map((text) => String(text).replace(/^\\/, "")),
    ]),
    ...list(db.getRelations()).flatMap((one) => [
      one.title,
      ...[one.relationTitle1, one.relationTitle2].filter((title) => title !== "none"),
    ]),
    ...pick(db.getNotes(), "text"),
  ];

  const UNNAMED = new Set(["stateStart", "stateEnd", "choice", "fork", "join", "divider", "noteGroup"]);
  const states = (db) => {
    const { nodes, edges } = db.getData();
    return [
      ...marked(nodes.filter((one) => !UNNAMED.has(one.shape)), "label", "description"),
      ...marked(edges, "label"),
    ];
  };

  const entities = (db) => [
    ...list(db.getEntities()).flatMap((one) => [
      one.alias || one.label,
      ...list(one.attributes).flatMap((at) => [at.type, at.name, ...list(at.keys), at.comment]),
    ]),
    ...pick(db.getRelationships(), "roleA"),
  ];

  const commits = (db) => [
    ...pick(db.getBranchesAsObjArray(), "name"),
    // An id that nobody wrote is drawn too, but differs from run to run.
    ...list(db.getCommitsArray()).flatMap((one) => [
      /^\d+-[0-9a-f]{7}$/.test(one.id) ? "" : one.id,
      ...list(one.tags),
    ]),
  ];

  const blocks = (all) =>
    list(all).flatMap((one) => [one.type === "space" ? "" : one.label, ...blocks(one.children)]);
  const names = (node) => [node.name, ...list(node.children).flatMap(names)];

  const READERS = {
    flowchart: laidOut(),
    swimlane: laidOut(),
    mindmap: laidOut(),
    kanban: laidOut("assigned", "ticket"),
    requirement: laidOut("name", "text", "requirementId", "docRef", "verifyMethod", "risk"),
    sequence,
    class: classes,
    state: states,
    er: entities,
    gitGraph: commits,
    gantt: (db) => [...db.getSections(), ...pick(db.getTasks(), "task")],
    journey: (db) => [...db.getSections(), ...pick(db.getTasks(), "task"), ...db.getActors()],
    timeline: (db) => [
      ...db.getSections(),
      ...list(db.getTasks()).flatMap((one) => [one.task, ...list(one.events)]),
      db.getCommonDb?.().getDiagramTitle(),
    ],
    pie: (db) => [...db.getSections().keys()],
    sankey: (db) => pick(db.getNodes(), "ID"),
    block: (db) => [...blocks(db.getBlocks()), ...pick(db.getEdges(), "label")],
    packet: (db) => db.getPacket().flatMap((row) => pick(row, "label")),
    architecture: (db) => [
      ...pick(db.getGroups(), "title"),
      ...pick(db.getServices(), "title", "iconText"),
      ...pick(db.getEdges(), "title"),
    ],
    radar: (db) => [...pick(db.getAxes(), "label"), ...pick(db.getCurves(), "label")],
    treemap: (db) => names(db.getRoot()),
    quadrant: (db) => walked([db.getQuadrantData()], ["text"]),
    xychart: (db) => walked(db.getDrawableElem(), ["text"]),
    c4: (db) => [
      db.getTitle?.(),
      ...walked([db.getC4ShapeArray(), db.getRels()], ["label", "descr", "techn", "text"]),
      ...walked(db.getBoundaries().slice(1), ["label", "text"]),
    ],
  };

  // Every string under one of these keys, wherever it stands.
  const SEEN = [
    "label", "labels", "text", "title", "name", "description", "descr", "caption", "content",
    "message", "task", "events", "value", "definition", "comment",
  ];
  const walked = (roots, keys) => {
    const found = [];
    const met = new Set();
    const visit = (value, shown) => {
      if (typeof value === "string") {
        if (shown) found.push(value);
      } else if (value && typeof value === "object" && !met.has(value)) {
        met.add(value);
        if (Array.isArray(value) || value instanceof Set) value.forEach((item) => visit(item, shown));
        else if (value instanceof Map) value.forEach((item) => visit(item, false));
        else for (const key of Object.keys(value)) visit(value[key], keys.includes(key));
      }
    };
    roots.forEach((root) => visit(root, false));
    return found;
  };

  // A kind without a reader above: all that the database's own getters give. It may name a text
  // more than once, and is there so that a new kind of diagram is read rather than refused.
  const generic = (db) => {
    const getters = new Set();
    for (let of = db; of && of !== Object.prototype; of = Object.getPrototypeOf(of)) {
      Object.getOwnPropertyNames(of).forEach((name) => getters.add(name));
    }
    const roots = [...getters]
      .filter((name) => /^get[A-Z]/.test(name) && !/Config|Acc|Title|Direction/.test(name))
      .filter((name) => typeof db[name] === "function" && db[name].length === 0)
      .map((name) => {
        try {
          return db[name]();
        } catch {
          return undefined;
        }
      });
    return walked(roots, SEEN);
  };

  // The forms that mermaid gives `#35;` and `&amp;` before its parsers see them.
  const written = (text) => text.replace(/ﬂ°°/g, "&#").replace(/ﬂ°/g, "&").replace(/¶ß/g, ";");
  const plain = (text) =>
    standIn.decoded(written(text).replace(/<br\s*\/?>/gi, " ").replace(/<\/?[a-z][^<>]*>/gi, ""))
      .replace(/\\n/g, " ")
      .replace(/\bfa[bklrs]?:fa-[\w-]+/g, "")
      .replace(/\s+/g, " ")
      .trim();

  // Kinds whose own data holds the title among the rest.
  const TITLED = new Set(["quadrant", "xychart", "c4"]);

  standIn.labels = (type, db, title) => {
    const reader = Object.hasOwn(READERS, type) ? READERS[type] : generic;
    const own = db.getDiagramTitle?.();
    const heading = own && TITLED.has(type) ? "" : own || title;
    return [heading, ...reader(db)]
      .filter((text) => typeof text === "string")
      .map(plain)
      .filter(Boolean);
  };
})();
