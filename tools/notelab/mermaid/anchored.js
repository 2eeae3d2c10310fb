// mermaid's lexers try each of a hundred `/^(?:…)/` rules at the start of what is left of the text.
// quickjs doesn't see that `^` rules out every other place and searches the whole rest in vain, so
// that time grows with the square of the text. A sticky twin of the rule looks at the start alone.
"use strict";
(() => {
  const twins = new WeakMap();
  const { match } = String.prototype;
  const { exec } = RegExp.prototype;

  // Is all of the pattern one group behind `^`? In `^(?:a)|b` it is not, and `b` may stand anywhere.
  const isAnchored = (source) => {
    if (!source.startsWith("^(?:")) return false;
    let depth = 0;
    let inClass = false;
    for (let at = 1; at < source.length; at += 1) {
      const letter = source[at];
      if (letter === "\\") at += 1;
      else if (inClass) inClass = letter !== "]";
      else if (letter === "[") inClass = true;
      else if (letter === "(") depth += 1;
      else if (letter === ")") {
        depth -= 1;
        if (depth === 0) return at === source.length - 1;
      }
    }
    return false;
  };

  const twinOf = (rule) => {
    let twin = twins.get(rule);
    if (twin === undefined) {
      const fits = /^[iu]*$/.test(rule.flags) && isAnchored(rule.source);
      twin = fits ? new RegExp(rule.source, `${rule.flags}y`) : null;
      twins.set(rule, twin);
    }
    return twin;
  };

  String.prototype.match = function (rule) {
    const twin = rule instanceof RegExp ? twinOf(rule) : null;
    if (!twin) return match.call(this, rule);
    twin.lastIndex = 0;
    return exec.call(twin, this);
  };
})();
