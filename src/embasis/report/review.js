"use strict";
{
  const facts = JSON.parse(document.getElementById("facts").textContent);
  const at = (id) => document.getElementById(id);
  const onMaps = facts.what === "pictures";
  let item = null, state = { total: 0, decided: 0, next: null, undo: false };
  let part = 0, edits = {}, layers = null; // of label maps: the part that is chosen, the classes given to parts, pixels
  let work = Promise.resolve(), over = false;

  const ask = async (path, body) => {
    const options = body === undefined ? {} : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
    let reply;
    try {
      reply = await fetch(path, options);
    } catch {
      throw new Error("The review has ended in the terminal: what was answered before is saved. The same command goes on.");
    }
    const value = await reply.json();
    if (!reply.ok) throw new Error(value.error);
    return value;
  };
  const then = (act) => { // one after the other, in the order of the keys
    work = work.then(async () => {
      if (over) return;
      at("message").textContent = "";
      try {
        await act();
      } catch (error) {
        at("message").textContent = error.message;
      }
    });
  };

  const count = (number) => number.toLocaleString("en");
  const showState = () => {
    at("progress").textContent = `${count(state.decided)} of ${count(state.total)} ${facts.what} decided, the least sure first`;
    at("bar").value = state.total ? state.decided / state.total : 1;
    at("undo").disabled = !state.undo;
  };
  const make = (tag, text, name) => {
    const made = document.createElement(tag);
    if (text !== undefined) made.textContent = text;
    if (name) made.className = name;
    return made;
  };
  const shownName = (label) => facts.shown[facts.classes.indexOf(label)] ?? label;
  const percent = (share) => share.toLocaleString("en", { style: "percent", maximumFractionDigits: 1 });

  const load = (source) => new Promise((done) => {
    const image = new Image();
    image.onload = () => done(image);
    image.onerror = () => done(null);
    image.src = source;
  });
  const pixelsOf = (image) => {
    const canvas = new OffscreenCanvas(image.naturalWidth, image.naturalHeight);
    const context = canvas.getContext("2d", { willReadFrequently: true });
    context.drawImage(image, 0, 0);
    return context.getImageData(0, 0, canvas.width, canvas.height);
  };

  const showPicture = async () => {
    const home = at("pictures");
    home.replaceChildren();
    home.classList.toggle("two", onMaps);
    if (!item.pictures.length) return;
    const image = await load(`picture/${item.place}`);
    if (image) {
      image.alt = `Picture ${item.id}`;
      image.className = Math.max(image.naturalWidth, image.naturalHeight) <= 64 ? "sharp" : "";
      home.append(image);
    } else {
      const reason = await ask(`picture/${item.place}`).catch((error) => error.message);
      home.append(make("p", `The picture cannot be shown: ${reason}`, "hint"));
    }
    if (onMaps) await showMap(home);
  };

  // --- label maps: the colours of the classes, edited parts in their new ones, and the chosen part marked
  const showMap = async (home) => {
    const version = Math.random().toString(36).slice(2);
    const [map, parts] = await Promise.all([load(`map/${item.place}?${version}`), load(`parts/${item.place}?${version}`)]);
    if (!map || !parts) throw new Error("The label map cannot be shown.");
    const canvas = make("canvas");
    canvas.id = "map";
    [canvas.width, canvas.height] = [map.naturalWidth, map.naturalHeight];
    canvas.setAttribute("role", "img");
    canvas.addEventListener("click", (event) => {
      const box = canvas.getBoundingClientRect();
      const x = Math.floor((event.clientX - box.left) / box.width * canvas.width);
      const y = Math.floor((event.clientY - box.top) / box.height * canvas.height);
      choosePart(layers.parts[4 * (y * canvas.width + x)]);
    });
    home.append(canvas);
    layers = { canvas, colours: pixelsOf(map), parts: pixelsOf(parts).data };
    choosePart(item.parts.length ? 1 : 0);
  };
  const colourOf = (label) => {
    const text = label === null ? "#808080" : facts.colours[facts.classes.indexOf(label)];
    return [1, 3, 5].map((start) => parseInt(text.slice(start, start + 2), 16));
  };
  const paint = () => {
    const { canvas, colours, parts } = layers, width = canvas.width, all = width * canvas.height;
    const shown = new ImageData(new Uint8ClampedArray(colours.data), width, canvas.height);
    const given = Object.fromEntries(Object.entries(edits).map(([number, label]) => [number, colourOf(label)]));
    const thick = Math.max(1, Math.round(width / 300));
    for (let at = 0; at < all; at++) {
      const number = parts[4 * at];
      if (given[number]) shown.data.set(given[number], 4 * at);
      if (number !== part || !part) continue;
      const x = at % width;
      const edge = x < thick || x >= width - thick || at < thick * width || at >= all - thick * width
        || parts[4 * (at - thick)] !== part || parts[4 * (at + thick)] !== part
        || parts[4 * (at - thick * width)] !== part || parts[4 * (at + thick * width)] !== part;
      if (edge) shown.data.set((x + Math.floor(at / width)) % (4 * thick) < 2 * thick ? [255, 255, 255] : [0, 0, 0], 4 * at);
    }
    canvas.getContext("2d").putImageData(shown, 0, 0);
  };
  const labelOf = (number) => number in edits ? edits[number] : item.parts[number - 1].class;
  const choosePart = (number) => {
    if (!number && item.parts.length) {
      at("message").textContent = "That part is too small to be chosen.";
      return;
    }
    part = number;
    paint();
    const told = item.parts[part - 1];
    const name = told && (labelOf(part) === null ? "unknown" : shownName(labelOf(part)));
    const words = told ? `Part ${part} of ${item.parts.length}: ${name}, ${percent(told.share)} of the picture, variance ${told.variance.toFixed(2)}` : "The map has no parts.";
    layers.canvas.setAttribute("aria-label", words);
    at("question").textContent = `${words}. ↑ ↓ or a click choose another part, a class or x (unknown) corrects it, Enter saves the map.`;
    markButtons();
  };

  const showValues = () => {
    at("values").hidden = !item.values;
    const rows = (item.values ?? []).map(([name, value]) => {
      const row = make("tr"), head = make("th", name);
      head.scope = "row";
      row.append(head, make("td", value));
      return row;
    });
    at("values").querySelector("tbody").replaceChildren(...rows);
  };
  const markButtons = () => {
    const guess = onMaps ? (part ? item?.parts[part - 1].class : undefined) : item?.label;
    const given = onMaps ? edits[part] : item?.decision?.label;
    for (const button of at("classes").children) {
      const label = facts.classes[button.dataset.number];
      button.classList.toggle("guessed", label === guess);
      button.classList.toggle("chosen", label === given);
      button.setAttribute("aria-pressed", String(label === given));
      button.disabled = !item;
    }
    at("unusable").classList.toggle("chosen", onMaps ? edits[part] === null : Boolean(item?.decision?.unusable));
    for (const id of ["right", "unusable", "back", "skip"]) at(id).disabled = !item;
  };
  const showGuess = () => {
    const line = at("guess");
    line.replaceChildren();
    if (onMaps) {
      line.append(`Mean confidence ${item.probability.toFixed(2)}, mean variance ${item.uncertainty.toFixed(2)}`);
      if (item.decision) line.append(". ", make("span", "Corrected: the map is the corrected one.", "was"));
      return;
    }
    line.append("Labelled ", make("b", shownName(item.label)), ` with probability ${item.probability.toFixed(2)}${item.trusted ? ", trusted" : ""}`);
    if (item.decision) line.append(". ", make("span", item.decision.unusable ? "You: unusable" : `You: ${shownName(item.decision.label)}`, "was"));
  };
  const show = async (place) => {
    showState();
    [edits, part, layers] = [{}, 0, null];
    item = place === null ? null : await ask(`item/${place}`);
    at("item").hidden = !item;
    at("end").hidden = Boolean(item);
    if (!onMaps) at("question").textContent = item ? "What is it?" : "";
    if (item) {
      at("name").textContent = onMaps || item.pictures.length ? item.id : `Row ${item.id}`;
      showGuess();
      showValues();
      await showPicture();
    }
    markButtons();
  };

  // --- answers
  const decide = async (answer) => {
    state = await ask("decide", { place: item.place, ...answer });
    await show(state.next);
  };
  const choose = async (label) => { // a class, or null = unusable
    if (!item) return;
    if (!onMaps) return decide(label === null ? { unusable: true } : { label });
    if (!part) return;
    edits[part] = label;
    if (label === item.parts[part - 1].class) delete edits[part];
    choosePart(part);
  };
  const moves = {
    right: async () => { if (item) await decide(onMaps ? { parts: edits, version: item.version } : { label: item.label }); },
    unusable: () => choose(null),
    undo: async () => {
      const before = await ask("undo", {});
      if (before.next === null) throw new Error("There is nothing to undo.");
      state = before;
      await show(before.next);
    },
    back: () => item && show((item.place + state.total - 1) % state.total),
    skip: () => item && show((item.place + 1) % state.total),
    finish: async () => {
      state = await ask("finish", {});
      over = true;
      showState();
      item = null;
      for (const button of document.querySelectorAll("button, input")) button.disabled = true;
      at("item").hidden = true;
      at("end").hidden = false;
      at("end").replaceChildren(make("h2", "The review has ended"), make("p", `${count(state.decided)} of ${count(state.total)} ${facts.what} are decided and saved. You can close this page.`));
    },
  };
  const typeClass = () => {
    const word = at("word").value.trim(), lower = word.toLowerCase();
    const named = facts.shown.map((name, number) => [name.toLowerCase(), number]);
    const same = facts.shown.indexOf(word);
    const close = named.filter(([name]) => name.startsWith(lower));
    const exact = named.filter(([name]) => name === lower);
    const few = same >= 0 ? [[word, same]] : exact.length ? exact : close;
    if (!word || few.length !== 1) {
      throw new Error(few.length && word ? `${few.length} classes begin with “${word}”: type more of it.` : `No class begins with “${word}”.`);
    }
    at("word").value = "";
    at("word").blur();
    return choose(facts.classes[few[0][1]]);
  };

  facts.shown.forEach((name, number) => {
    const button = make("button");
    button.type = "button";
    button.dataset.number = number;
    if (number < 10) button.append(make("kbd", String((number + 1) % 10)));
    if (facts.colours.length) {
      const swatch = make("i", "", "swatch");
      swatch.style.background = facts.colours[number];
      button.append(swatch);
    }
    button.append(make("span", name));
    button.addEventListener("click", (event) => {
      if (event.detail) button.blur(); // after a click, Enter is an answer again and not this button
      then(() => choose(facts.classes[number]));
    });
    at("classes").append(button);
    const option = make("option");
    option.value = name;
    at("known").append(option);
  });
  for (const [id, move] of Object.entries(moves)) {
    at(id).addEventListener("click", (event) => {
      if (event.detail) at(id).blur();
      then(move);
    });
  }
  if (onMaps) at("unusable").querySelector("span").textContent = "Unknown part";
  if (onMaps) at("right").querySelector("span").textContent = "Save the map";
  at("output").textContent = facts.output;
  at("typed").addEventListener("submit", (event) => {
    event.preventDefault();
    then(typeClass);
  });

  const keys = { Enter: "right", x: "unusable", u: "undo", Backspace: "undo", s: "skip", n: "skip", ArrowRight: "skip", p: "back", ArrowLeft: "back", q: "finish" };
  document.addEventListener("keydown", (event) => {
    const typing = event.target === at("word");
    if (typing && event.key === "Escape") at("word").blur();
    const wantsUndo = (event.ctrlKey || event.metaKey) && event.key === "z" && !typing;
    if (typing || event.altKey || ((event.ctrlKey || event.metaKey) && !wantsUndo)) return;
    if (event.target.tagName === "BUTTON" && ["Enter", " "].includes(event.key)) return;
    if (wantsUndo) then(moves.undo);
    else if (event.key === "/") at("word").focus();
    else if (/^[0-9]$/.test(event.key)) {
      const number = (Number(event.key) + 9) % 10;
      if (number < facts.classes.length) then(() => choose(facts.classes[number]));
    } else if (onMaps && ["ArrowUp", "ArrowDown"].includes(event.key)) {
      then(() => {
        const many = item?.parts.length;
        if (many) choosePart((part - 1 + (event.key === "ArrowDown" ? 1 : many - 1)) % many + 1);
      });
    } else if (event.key in keys && !event.repeat) then(moves[keys[event.key]]);
    else return;
    event.preventDefault();
  });

  then(async () => {
    state = await ask("state");
    await show(state.next);
  });
}
