/* One formula from TeX to HTML and MathML, as JSON: {"html": …} or {"error": …}.
 * A formula is untrusted: what could link, load or set attributes is refused (`trust`), and its
 * expansion is bounded. */
function renderFormula(tex, display) {
  "use strict";
  try {
    const html = katex.renderToString(tex, {
      displayMode: display,
      throwOnError: true,
      strict: "error",
      trust: (context) => {
        throw new Error(`${context.command} isn't allowed in a formula`);
      },
      maxExpand: 1000,
      maxSize: 50,
    });
    return JSON.stringify({ html });
  } catch (error) {
    return JSON.stringify({ error: String((error && error.message) || error) });
  }
}
