// mermaid copies all of its settings, nine hundred, at each label that it reads: its merge into a
// new object, property by property. That took two thirds of a parse here. A spread says the same.
"use strict";
(() => {
  const { isArray } = Array;
  const { assign, getOwnPropertyNames, keys } = Object;
  const isObject = (one) => typeof one === "object" && one !== null;

  // Two levels deep, as mermaid does it: what lies below is shared, null left out, a list without
  // what it says twice.
  const copy = (one, depth) => {
    if (isArray(one)) return [...new Set(one)];
    if (depth <= 0) return assign({}, one);
    const all = { ...one };
    for (const key of keys(all)) {
      const value = all[key];
      if (typeof value !== "object") continue;
      if (value === null) delete all[key];
      else all[key] = copy(value, depth - 1);
    }
    return all;
  };

  standIn.merge = (merge) => (into, from, options) => {
    const plain = options === undefined && isObject(from) && !isArray(from);
    const fresh = plain && isObject(into) && !isArray(into) && !getOwnPropertyNames(into).length;
    return fresh ? copy(from, 2) : merge(into, from, options);
  };
})();
