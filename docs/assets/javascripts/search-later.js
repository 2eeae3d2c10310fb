/* Material fetches the search index, most of a page's weight, while each page loads. This holds that
 * request back until the reader goes to the search field; main.html loads this before Material.
 * Material also gives the root element classes that say that scripts run. Given here, before there is
 * a body, they don't make the browser style the whole page again. */
(function () {
  "use strict";

  document.documentElement.classList.replace("no-js", "js");
  document.documentElement.classList.add("js-focus-visible");

  const { open, send } = XMLHttpRequest.prototype;
  const indexes = new WeakSet();

  XMLHttpRequest.prototype.open = function (method, address, ...rest) {
    if (/\/search_index\.json$/.test(address)) indexes.add(this);
    open.call(this, method, address, ...rest);
  };

  XMLHttpRequest.prototype.send = function (...body) {
    const isSearch = (element) => element?.matches("[data-md-component=search-query]");
    if (!indexes.has(this) || isSearch(document.activeElement)) {
      send.apply(this, body);
      return;
    }
    const start = ({ target }) => {
      if (!isSearch(target)) return;
      document.removeEventListener("focusin", start);
      send.apply(this, body);
    };
    document.addEventListener("focusin", start);
  };
})();
