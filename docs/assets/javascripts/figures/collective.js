/* A collective's time by latency and bandwidth, as shardlab.proofs.formulas.seconds computes it. */
(function () {
  "use strict";

  const { play, percent, size, time, answer } = window.figures;
  const share = ([ahead, behind], ranks) => ahead * ranks - behind;

  function parts(data, at, payload) {
    const sent = payload * share(data.wire[at.op], at.ranks) / at.ranks;
    return {
      sent,
      latency: at.base * 1e-6 + share(data.steps[at.op], at.ranks) * at.hop * 1e-6,
      bytes: sent / (at.bandwidth * 1e9),
    };
  }

  const place = (value, [low, high]) =>
    100 * (Math.log10(value) - Math.log10(low)) / (Math.log10(high) - Math.log10(low));

  function draw(figure, at, data) {
    const percentOfBytes = (payload) => place(payload, data.bytes).toFixed(2);
    const percentOfSeconds = (seconds) => (100 - place(seconds, data.times)).toFixed(2);
    const { options } = data.controls.find(({ name }) => name === "payload");
    const sizes = options.map(([value]) => value);
    figure.querySelector(".play-curve").setAttribute("points", sizes.map((payload) => {
      const { latency, bytes } = parts(data, at, payload);
      return `${percentOfBytes(payload)},${percentOfSeconds(latency + bytes)}`;
    }).join(" "));
    figure.querySelector(".play-marker").setAttribute("d", `M${percentOfBytes(at.payload)} 0v100`);
    const dots = data.points.filter(([, op]) => op === at.op).map(([link, , payload, seconds]) => {
      const dot = document.createElementNS("http://www.w3.org/2000/svg", "path");
      dot.setAttribute("class", `play-dot play-${link}`);
      dot.setAttribute("d", `M${percentOfBytes(payload)} ${percentOfSeconds(seconds)}h0`);
      return dot;
    });
    figure.querySelector(".play-dots").replaceChildren(...dots);
    const { sent, latency, bytes } = parts(data, at, at.payload);
    const whole = latency + bytes;
    const points = data.points.filter(([link, op]) =>
      at.ranks === 2 && link === at.preset && op === at.op);
    const measured = points.find(([, , payload]) => payload === at.payload);
    const ratios = points.map(([, , payload, seconds]) => {
      const model = parts(data, at, payload);
      return (model.latency + model.bytes) / seconds;
    });
    answer(figure, "time", time(whole));
    answer(figure, "latency", percent(latency / whole));
    answer(figure, "busbw", `${size(sent / whole)}/s`);
    answer(figure, "measured", measured ? time(measured[3]) : "–");
    const farthest = Math.max(...ratios, ...ratios.map((ratio) => 1 / ratio));
    answer(figure, "farthest", ratios.length ? `${farthest.toFixed(2)} ×` : "–");
  }

  /* A link's constants follow it; whoever turns one of them has a link of their own. */
  function turned(name, values, data) {
    if (["base", "hop", "bandwidth"].includes(name)) return { preset: "own" };
    const constants = (data.presets[values.preset] || {})[values.op];
    if (!["op", "preset"].includes(name) || !constants) return {};
    const [base, hop, bandwidth] = constants;
    return { base, hop, bandwidth };
  }

  play("collective", draw, turned);
})();
