/* When a recall card is due, what an answer is worth, and the file that holds answers.
 *
 * The same rules as in tools/notelab/recall: the schedule is that of the package fsrs (FSRS-6 with
 * its default parameters, without fuzz), which `shardbook recall` uses. Tests compare both. Nothing
 * here touches the page. */
(function (scope) {
  "use strict";

  const FORMAT = "shardbook-recall";
  const VERSION = 1;
  const MINUTE = 60000; // milliseconds
  const DAY = 1440 * MINUTE;

  // ---------------------------------------------------------------- the schedule

  const W = [
    0.212, 1.2931, 2.3065, 8.2956, 6.4133, 0.8334, 3.0194, 0.001, 1.8722, 0.1666, 0.796, 1.4835,
    0.0614, 0.2629, 1.6483, 0.6014, 1.8729, 0.5425, 0.0912, 0.0658, 0.1542,
  ];
  const RETENTION = 0.9;
  const FACTOR = 0.9 ** (1 / -W[20]) - 1;
  const STEPS = { learning: [1, 10], relearning: [10] }; // minutes
  const [AGAIN, HARD, GOOD, EASY] = [1, 2, 3, 4];
  const atLeast = (stability) => Math.max(stability, 0.001);
  const between = (difficulty) => Math.min(Math.max(difficulty, 1), 10);
  const firstDifficulty = (grade) => W[4] - Math.exp(W[5] * (grade - 1)) + 1;

  function harder(difficulty, grade) {
    const step = ((10 - difficulty) * -(W[6] * (grade - GOOD))) / 9;
    return between(W[7] * firstDifficulty(EASY) + (1 - W[7]) * (difficulty + step));
  }

  function sameDay(stability, grade) {
    const growth = Math.exp(W[17] * (grade - GOOD + W[18])) * stability ** -W[19];
    return atLeast(stability * (grade >= HARD ? Math.max(growth, 1) : growth));
  }

  function afterDays(memory, days, grade) {
    const { difficulty, stability } = memory;
    const recalled = (1 + (FACTOR * Math.max(0, days)) / stability) ** -W[20];
    if (grade === AGAIN) {
      const long = W[11] * difficulty ** -W[12] * ((stability + 1) ** W[13] - 1)
        * Math.exp((1 - recalled) * W[14]);
      return atLeast(Math.min(long, stability / Math.exp(W[17] * W[18])));
    }
    const penalty = grade === HARD ? W[15] : 1;
    const bonus = grade === EASY ? W[16] : 1;
    return atLeast(stability * (1 + Math.exp(W[8]) * (11 - difficulty) * stability ** -W[9]
      * (Math.exp((1 - recalled) * W[10]) - 1) * penalty * bonus));
  }

  function interval(stability) {
    const days = Math.round((stability / FACTOR) * (RETENTION ** (1 / -W[20]) - 1));
    return Math.min(Math.max(days, 1), 36500) * DAY;
  }

  /* Return a memory after one more answer; null is the memory of a card that was never asked. */
  function review(memory, grade, at) {
    const next = { ...(memory || { state: "learning", step: 0 }), last: at };
    if (!memory) {
      next.stability = atLeast(W[grade - 1]);
      next.difficulty = between(firstDifficulty(grade));
    } else {
      const days = Math.floor((at - memory.last) / DAY);
      next.stability = days < 1 ? sameDay(memory.stability, grade) : afterDays(memory, days, grade);
      next.difficulty = harder(memory.difficulty, grade);
    }
    if (next.state === "review") {
      if (grade !== AGAIN) return { ...next, due: at + interval(next.stability) };
      return { ...next, state: "relearning", step: 0, due: at + STEPS.relearning[0] * MINUTE };
    }
    const steps = STEPS[next.state];
    if (grade === EASY || (grade === GOOD && next.step + 1 === steps.length)) {
      return { ...next, state: "review", step: null, due: at + interval(next.stability) };
    }
    if (grade === AGAIN) next.step = 0;
    if (grade === GOOD) next.step += 1;
    let minutes = steps[next.step];
    if (grade === HARD && next.step === 0) {
      minutes = steps.length === 1 ? steps[0] * 1.5 : (steps[0] + steps[1]) / 2;
    }
    return { ...next, due: at + minutes * MINUTE };
  }

  /* Return when a card is due after its answers, in milliseconds since 1970; never: Infinity. */
  function due(reviews) {
    const ordered = reviews.map((each) => [Date.parse(each.at), each.grade]);
    ordered.sort((a, b) => a[0] - b[0]);
    const memory = ordered.reduce((before, [at, grade]) => review(before, grade, at), null);
    return memory ? memory.due : Infinity;
  }

  // ---------------------------------------------------------------- numbers

  const TOLERANCE = 0.01; // of bytes, as in tools/notelab/recall/cards.py
  const WRITTEN = /^(\d[\d\s_,.'’]*?(?:e[+-]?\d+)?)\s*(\p{L}+)?\.?$/iu;
  const GROUPED = /^\d{1,3}([,.])\d{3}(?:\1\d{3})*$/;

  /* Return the number and the unit that a text is, or null. */
  function quantity(text) {
    const written = WRITTEN.exec(text.trim());
    if (!written) return null;
    let digits = written[1].replace(/[\s_'’]/g, "");
    if (digits.includes(",") && digits.includes(".")) {
      const grouping = digits.lastIndexOf(",") < digits.lastIndexOf(".") ? "," : ".";
      digits = digits.replaceAll(grouping, "");
    } else if (GROUPED.test(digits) && digits.split(".").length !== 2) {
      digits = digits.replace(/[,.]/g, "");
    }
    const value = Number(digits.replace(",", "."));
    if (Number.isNaN(value)) return null;
    const bytes = /^(?:([kmgtp])(i?))?b(?:ytes?)?$/i.exec(written[2] || "");
    if (!bytes) return { value, unit: written[2] || "" };
    const power = " kmgtp".indexOf((bytes[1] || " ").toLowerCase());
    return { value: value * (bytes[2] ? 1024 : 1000) ** power, unit: "B" };
  }

  /* Return "right", "wrong", or "unit" where a number of bytes lacks its unit. */
  function judge(typed, expected) {
    const bytes = expected.unit === "B";
    if (bytes && !typed.unit) return "unit";
    if ((typed.unit === "B") !== bytes) return "wrong";
    const largest = Math.max(Math.abs(typed.value), Math.abs(expected.value));
    const apart = Math.abs(typed.value - expected.value);
    return apart <= (bytes ? TOLERANCE : 1e-9) * largest ? "right" : "wrong";
  }

  // ---------------------------------------------------------------- the file of answers

  const ZONED = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)$/;

  class ExportError extends Error {
    constructor(reason, detail) {
      super(`${reason}: ${detail}`);
      Object.assign(this, { reason, detail });
    }
  }

  function isReview(each) {
    return Boolean(each) && typeof each === "object"
      && Object.keys(each).sort().join() === "at,card,evidence,grade"
      && [each.card, each.at, each.evidence].every((value) => typeof value === "string")
      && Number.isInteger(each.grade) && each.grade >= AGAIN && each.grade <= EASY
      && ZONED.test(each.at) && !Number.isNaN(Date.parse(each.at));
  }

  /* Return the answers in an export; an ExportError says why a text is none. */
  function read(text, now) {
    let data = null;
    try {
      data = JSON.parse(text);
    } catch (error) {
      throw new ExportError("json", error.message);
    }
    if (!data || data.format !== FORMAT) throw new ExportError("format", FORMAT);
    if (data.version !== VERSION) throw new ExportError("version", data.version);
    const names = Object.keys(data).sort().join();
    if (names !== "format,reviews,version" || !Array.isArray(data.reviews)) {
      throw new ExportError("reviews", names);
    }
    const bad = data.reviews.findIndex((each) => !isReview(each));
    if (bad >= 0) throw new ExportError("answer", bad + 1);
    const late = data.reviews.findIndex((each) => Date.parse(each.at) > now + DAY);
    if (late >= 0) throw new ExportError("future", late + 1);
    return data.reviews;
  }

  function write(reviews, indent) {
    return JSON.stringify({ format: FORMAT, version: VERSION, reviews }, null, indent);
  }

  /* Return both lists as one, in which no answer is twice. */
  function merge(here, there) {
    const name = (each) => `${Date.parse(each.at)} ${each.card}`;
    const known = new Map(here.map((each) => [name(each), each]));
    for (const each of there) if (!known.has(name(each))) known.set(name(each), each);
    return [...known.values()];
  }

  scope.shardbookRecall = { due, quantity, judge, read, write, merge };
})(globalThis);
