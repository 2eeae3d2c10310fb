// What mermaid's parsers ask of a browser, and no more: enough to load the bundle and to parse, not
// to draw. Written for quickjs, where there is no window, no document, no timer and no console.
"use strict";
(() => {
  const g = globalThis;
  const nothing = () => undefined;
  const named = (name) => ({ [name]: class {} })[name];

  g.window = g.self = g;
  g.addEventListener = g.removeEventListener = g.dispatchEvent = nothing;
  g.navigator = { userAgent: "quickjs", platform: "", language: "en", languages: ["en"] };
  g.location = { href: "about:blank", protocol: "about:", host: "", pathname: "blank", search: "", hash: "" };
  g.performance = g.performance || { now: () => 0 };
  g.matchMedia = () => ({ matches: false, addEventListener: nothing, addListener: nothing });
  g.getComputedStyle = () => ({ getPropertyValue: () => "" });
  g.console = {};
  for (const level of ["log", "debug", "info", "warn", "error", "trace", "group", "groupEnd"]) {
    g.console[level] = nothing;
  }

  // The parsers wait with timers only to give way to others; here nobody waits.
  const soon = (work, _delay, ...args) => {
    Promise.resolve().then(() => work(...args));
    return 0;
  };
  g.setTimeout = g.setImmediate = g.requestAnimationFrame = soon;
  g.setInterval = () => 0;
  g.clearTimeout = g.clearInterval = g.clearImmediate = g.cancelAnimationFrame = nothing;
  g.queueMicrotask = g.queueMicrotask || ((work) => void Promise.resolve().then(work));

  for (const name of [
    "Node", "Element", "HTMLElement", "SVGElement", "HTMLFormElement", "HTMLTemplateElement",
    "DocumentFragment", "NamedNodeMap", "Event", "CSSStyleSheet", "MutationObserver",
    "ResizeObserver", "XMLSerializer", "AbortController",
  ]) {
    g[name] = g[name] || named(name);
  }
  g.NodeFilter = { SHOW_ELEMENT: 1, SHOW_COMMENT: 128, SHOW_TEXT: 4 };
  g.DOMParser = class {
    parseFromString() {
      throw new Error("this stand-in parses no markup");
    }
  };

  // Colours are judged where they are drawn: any word that could be one is taken for one.
  const colour = /^(#[0-9a-f]{3,8}|[a-z]+|(rgb|hsl|hwb|lab|lch|oklab|oklch|color)a?\(.*\))$/i;
  const isColour = (value) => colour.test(String(value).trim());
  g.CSS = { supports: (property, value) => property !== "color" || isColour(value), escape: String };
  g.Option = class {
    constructor() {
      let kept = "";
      this.style = {
        get color() {
          return kept;
        },
        set color(value) {
          kept = isColour(value) ? value : "";
        },
      };
    }
  };

  const ENTITIES = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };
  const decoded = (html) =>
    html.replace(/&(?:#(\d{1,7})|#x([0-9a-f]{1,6})|(\w{1,32}));/gi, (whole, dec, hex, name) => {
      const code = dec ? parseInt(dec, 10) : hex ? parseInt(hex, 16) : 0;
      if (code) return code <= 0x10ffff ? String.fromCodePoint(code) : whole;
      return Object.hasOwn(ENTITIES, name) ? ENTITIES[name] : whole;
    });
  g.standIn = { decoded };

  class StandInElement extends g.HTMLElement {
    constructor(tag) {
      super();
      this.tagName = this.nodeName = String(tag).toUpperCase();
      this.nodeType = 1;
      this.style = {};
      this.attributes = [];
      this.childNodes = this.children = [];
      this.ownerDocument = g.document;
      this.classList = { add: nothing, remove: nothing, contains: () => false };
      this._text = "";
    }
    set innerHTML(html) {
      this._text = decoded(String(html));
    }
    get innerHTML() {
      return this._text;
    }
    set textContent(text) {
      this._text = String(text);
    }
    get textContent() {
      return this._text;
    }
    get value() {
      return this._text;
    }
    getAttribute() {
      return null;
    }
    appendChild(child) {
      return child;
    }
    querySelector() {
      return null;
    }
    querySelectorAll() {
      return [];
    }
  }
  for (const name of ["setAttribute", "removeAttribute", "removeChild", "remove", "insertBefore",
    "addEventListener", "removeEventListener"]) {
    StandInElement.prototype[name] = nothing;
  }

  g.document = {
    nodeType: 9,
    nodeName: "#document",
    readyState: "complete",
    currentScript: null,
    cookie: "",
    addEventListener: nothing,
    removeEventListener: nothing,
    createElement: (tag) => new StandInElement(tag),
    createElementNS: (_space, tag) => new StandInElement(tag),
    createTextNode: (text) => ({ nodeType: 3, nodeValue: String(text), textContent: String(text) }),
    createDocumentFragment: () => new StandInElement("#fragment"),
    getElementById: () => null,
    getElementsByTagName: () => [],
    getElementsByClassName: () => [],
    querySelector: () => null,
    querySelectorAll: () => [],
    // Without createHTMLDocument DOMPurify calls itself unsupported and hands text back as it came.
    // That is right here: nothing is ever put into a page.
    implementation: {},
  };
  g.document.documentElement = new StandInElement("html");
  g.document.head = new StandInElement("head");
  g.document.body = new StandInElement("body");

  const copy = (value, seen) => {
    if (value === null || typeof value !== "object") return value;
    if (seen.has(value)) return seen.get(value);
    if (value instanceof Date) return new Date(value.getTime());
    const made = Array.isArray(value) ? [] : value instanceof Map ? new Map() : value instanceof Set ? new Set() : {};
    seen.set(value, made);
    if (value instanceof Map) value.forEach((item, key) => made.set(copy(key, seen), copy(item, seen)));
    else if (value instanceof Set) value.forEach((item) => made.add(copy(item, seen)));
    else for (const key of Object.keys(value)) made[key] = copy(value[key], seen);
    return made;
  };
  g.structuredClone = g.structuredClone || ((value) => copy(value, new Map()));

  g.crypto = g.crypto || {
    getRandomValues: (array) => array.fill(7),
    randomUUID: () => "00000000-0000-4000-8000-000000000000",
  };
  g.TextEncoder = g.TextEncoder || class {
    encode(text) {
      return Uint8Array.from(unescape(encodeURIComponent(String(text))), (c) => c.charCodeAt(0));
    }
  };
  g.TextDecoder = g.TextDecoder || class {
    decode(bytes) {
      let text = "";
      for (const byte of bytes || []) text += String.fromCharCode(byte);
      return decodeURIComponent(escape(text));
    }
  };
  g.URL = g.URL || class {
    constructor(address) {
      this.href = String(address);
      const parts = /^([a-z][a-z0-9+.-]*:)(?:\/\/([^/?#]*))?([^?#]*)/i.exec(this.href);
      if (!parts) throw new TypeError("Invalid URL");
      [, this.protocol, this.host = "", this.pathname] = parts;
      this.hostname = this.host.replace(/:\d*$/, "");
    }
    static canParse(address) {
      return /^[a-z][a-z0-9+.-]*:/i.test(String(address));
    }
    toString() {
      return this.href;
    }
  };
})();
