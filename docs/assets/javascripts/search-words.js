/* Decides what the words of a query match. The build appends this to the worker of Material's search.
 *
 * Material lets each word of a query match whatever begins with it, also the "es" of "qué es 1F1B".
 * Here words of grammar match nothing. A word matches itself first, then longer words, then other
 * forms of it; if there is none of these, words with one letter wrong. Accents may be left out. A page
 * comes first if the query is one of its keywords or a term that it introduces. */
(function () {
  "use strict";

  // What a question has around the words that it asks about.
  const GRAMMAR = new Set((
    "a about an and are as at be between by can difference do does explain for from how i in is it mean means my of " +
    "on or should than that the their this to use used using versus vs what when where which who why with work works " +
    "al como con cual cuales cuando de del diferencia donde el en entre es esta estan explica explicacion funciona " +
    "funcionan hace hacen hay la las lo los mi mis o para por puedo que quien se ser significa sirve sirven son su " +
    "sus un una unas uno unos usa usan usar y"
  ).split(" "));
  const SAME = 10;
  const LONGER = 3;
  const AKIN = 1;
  const KEYWORD = 1e12; // above each score of Material's fields
  const SECTION = 3; // of a page: Material multiplies a page's score by 5, a section's by 2
  const TITLE = 10;
  const SHORTEST = 4; // letters of a word that may have one of them wrong

  const lunr = self.lunr;
  const { Builder, Index, Pipeline, Token } = lunr;
  const fold = (word) => word.normalize("NFD").replace(/\p{M}/gu, "");
  /* Return the root of a word. Spanish words in -ion have an accent, which a reader may leave out. */
  function stem(word) {
    const whole = lunr.es ? word.replace(/ion$/, "ión") : word;
    return fold((lunr.es || lunr).stemmer(new Token(whole, {})).toString());
  }

  function split(text) {
    return [...new Set(text.toLowerCase().split(lunr.tokenizer.separator).filter(Boolean))];
  }

  function isGrammar(word) {
    return GRAMMAR.has(fold(word));
  }

  /* Return what a text is about; "all-gathers" and "allgather" are about the same. */
  function about(text) {
    return stem(split(text).filter((word) => !isGrammar(word)).map(stem).join(""));
  }

  // ---------------------------------------------------------------- the index

  const keywords = new Map(); // pages and weights, by what the keyword is about
  const titles = new Map(); // pages and sections, likewise

  function note(places, text, place, weight) {
    const key = about(text);
    places.set(key, (places.get(key) || new Map()).set(place, weight));
  }

  /* Index a word with accents also without them. */
  function addFolded(token) {
    const plain = fold(token.toString());
    return plain === token.toString() ? token : [token, token.clone(() => plain)];
  }
  Pipeline.registerFunction(addFolded, "addFolded");

  const { ref, add } = Builder.prototype;
  Builder.prototype.ref = function (name) { // called once, after Material has chosen the pipeline
    this.pipeline.add(addFolded);
    return ref.call(this, name);
  };
  Builder.prototype.add = function (entry, attributes) {
    const weight = entry.boost || 1;
    if (weight >= 1) note(titles, entry.title, entry.location, TITLE);
    const sure = entry.location.includes("#") ? SECTION * weight : weight;
    for (const term of entry.terms || []) note(keywords, term, entry.location, sure);
    for (const tag of entry.tags || []) note(keywords, tag, entry.location, 2 * sure);
    return add.call(this, entry, attributes);
  };

  // ---------------------------------------------------------------- a query

  let forms = null; // the words of the index, by stem

  function isNear(a, b) {
    let at = 0;
    while (at < a.length && a[at] === b[at]) at += 1;
    const [x, y] = [a.slice(at), b.slice(at)];
    const swapped = x[0] === y[1] && x[1] === y[0] && x.slice(2) === y.slice(2);
    return swapped || x.slice(1) === y || x === y.slice(1) || x.slice(1) === y.slice(1);
  }

  /* Return the words of the index that a word of a query matches, with their weights. */
  function match(index, word) {
    const indexed = Object.keys(index.invertedIndex);
    forms = forms || indexed.reduce((all, each) => {
      const root = stem(each);
      return all.set(root, [...(all.get(root) || []), each]);
    }, new Map());
    const found = new Map();
    for (const each of forms.get(stem(word)) || []) found.set(each, AKIN);
    for (const each of indexed) if (each.startsWith(word)) found.set(each, each === word ? SAME : LONGER);
    if (!found.size && word.length >= SHORTEST) {
      for (const each of indexed) if (isNear(word, each)) found.set(each, AKIN);
    }
    return found;
  }

  /* Leave each place that a word was found at only once: with two, Material marks it twice. */
  function markOnce(metadata) {
    const marked = new Set();
    for (const [word, fields] of Object.entries(metadata)) {
      metadata[word] = Object.fromEntries(Object.entries(fields).map(([field, { position }]) => [field, {
        position: position.filter((place) => !marked.has(field + place) && marked.add(field + place)),
      }]));
    }
  }

  const { search } = Index.prototype;
  Index.prototype.search = function (text) {
    if (/[\^~:+]|(^|\s)-/.test(text)) return search.call(this, text); // in lunr's own language
    const typed = split(text.replaceAll("*", ""));
    const asked = typed.filter((word) => !isGrammar(word));
    const matches = asked.map((word) => [word, match(this, word)]);
    const weights = new Map(matches.flatMap(([, found]) => [...found]));
    // A query without a term finds every page.
    const hits = !weights.size ? [] : this.query((query) => {
      for (const [term, boost] of weights) query.term(term, { boost, usePipeline: false });
    });
    const [pages, places] = [keywords, titles].map((all) => all.get(about(typed.join(" "))) || new Map());
    for (const page of pages.keys()) {
      if (!hits.some(({ ref }) => ref === page)) hits.push({ ref: page, score: 1, matchData: { metadata: {} } });
    }
    const onPage = new Map(); // the words that a page has, in whichever of its sections
    const pageOf = ({ ref }) => ref.split("#")[0];
    for (const hit of hits) {
      const words = onPage.get(pageOf(hit)) || new Set();
      for (const [word, found] of matches) if ([...found.keys()].some((each) => each in hit.matchData.metadata)) words.add(word);
      onPage.set(pageOf(hit), words);
    }
    for (const hit of hits) {
      const { metadata } = hit.matchData;
      const held = { ...metadata };
      let count = 0;
      for (const [word, found] of matches) {
        const here = [...found.keys()].filter((each) => each in held);
        count += here.length > 0;
        // Material strikes out each typed word that is not the beginning of a word here; another section may have it.
        if (onPage.get(pageOf(hit)).has(word) && !here.some((each) => each.startsWith(word))) metadata[word] = {};
      }
      for (const word of typed) if (isGrammar(word) || pages.has(hit.ref)) metadata[word] = metadata[word] || {};
      markOnce(metadata);
      hit.score *= (count / asked.length) ** 2 * (places.get(hit.ref) || 1);
      hit.score += KEYWORD * (pages.get(hit.ref) || 0);
    }
    return hits.sort((a, b) => b.score - a.score);
  };
})();
