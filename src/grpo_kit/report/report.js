"use strict";
// Foreign text reaches the page as textContent only. Nothing here is fetched.
(() => {
  const byId = (id) => document.getElementById(id);
  const make = (tag, className, text) => {
    const node = document.createElement(tag);
    if (className) node.className = className;
    if (text !== undefined) node.textContent = text;
    return node;
  };
  const told = (value, digits = 3) => (value === null || value === undefined ? "–" : String(+value.toPrecision(digits)));

  // ---- charts

  const curves = JSON.parse(byId("curve-data").textContent);
  const boxes = [...document.querySelectorAll("[data-chart]")];
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const drawn = [];

  const movingMean = (values) => {
    const known = values.filter((value) => value !== null).length;
    const half = Math.floor(Math.min(known / 24, 12));
    return values.map((value, at) => {
      if (value === null) return null;
      const near = values.slice(Math.max(at - half, 0), at + half + 1).filter((one) => one !== null);
      return near.reduce((sum, one) => sum + one, 0) / near.length;
    });
  };

  const stacked = (columns) => {
    const sums = curves.steps.map(() => 0);
    return columns.map((column) => column.map((value, at) => (value === null ? null : (sums[at] += value))));
  };

  const intervals = (series) => (plot) => {
    const { ctx } = plot;
    ctx.save();
    ctx.strokeStyle = colour("--s1");
    ctx.lineWidth = 2 * devicePixelRatio;
    series.low.forEach((low, at) => {
      if (low === null || series.high[at] === null) return;
      const x = plot.valToPos(curves.steps[at], "x", true);
      ctx.beginPath();
      ctx.moveTo(x, plot.valToPos(low, "y", true));
      ctx.lineTo(x, plot.valToPos(series.high[at], "y", true));
      ctx.stroke();
    });
    ctx.restore();
  };

  const shade = (plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.fillStyle = colour("--span");
    ctx.beginPath(); // one path, so that two findings at once are no darker
    for (const span of curves.spans) {
      const from = Math.max(plot.valToPos(span.from, "x", true), bbox.left);
      const to = Math.min(plot.valToPos(span.to, "x", true), bbox.left + bbox.width);
      ctx.rect(from, bbox.top, Math.max(to - from, 2), bbox.height);
    }
    ctx.fill();
    ctx.restore();
  };

  const legend = (chart, at) => {
    const box = document.querySelector(`[data-legend="${at}"]`);
    const outputs = [...box.querySelectorAll("output")];
    const last = (values) => values.findLast((value) => value !== null);
    return (index) => {
      chart.series.forEach((series, i) => {
        outputs[i].textContent = told(index === null ? last(series.values) : series.values[index]);
      });
      box.querySelector(".step").textContent = index === null ? "" : `step ${curves.steps[index]}`;
    };
  };

  const draw = (box, at) => {
    const chart = curves.charts[at];
    const say = legend(chart, at);
    const hook = { drawClear: [shade], draw: [], setCursor: [(plot) => say(plot.cursor.idx ?? null)] };
    const data = [curves.steps];
    const series = [{}];
    const bands = [];
    if (chart.stacked) {
      const sums = stacked(chart.series.map((own) => movingMean(own.values)));
      sums.reverse().forEach((values, down) => {
        const line = colour(`--s${(sums.length - 1 - down) % 6}`);
        data.push(values);
        series.push({ stroke: line, fill: `${line}55`, width: 1, spanGaps: true, points: { show: false } });
        if (down) bands.push({ series: [down, down + 1] });
      });
    } else {
      chart.series.forEach((own, i) => {
        const line = colour(`--s${i % 6}`);
        const alone = own.values.filter((value) => value !== null).length;
        if (own.low.length) {
          data.push(own.values);
          series.push({ stroke: line, width: 1.5, dash: [4, 4], spanGaps: true, points: { show: true, size: 8, fill: line } });
          hook.draw.push(intervals(own));
          return;
        }
        if (own.least.length) {
          for (const ends of [own.most, own.least]) {
            data.push(ends);
            series.push({ stroke: `${line}44`, width: 1, spanGaps: true, points: { show: false } });
          }
          bands.push({ series: [data.length - 2, data.length - 1], fill: `${line}22` });
        } else if (alone > 24) {
          data.push(own.values);
          series.push({ stroke: `${line}66`, width: 1, spanGaps: true, points: { show: false } });
        }
        data.push(movingMean(own.values));
        series.push({ stroke: line, width: i ? 1.5 : 2.25, spanGaps: true, points: { show: alone < 3, size: 7, fill: line } });
      });
    }
    const known = data.slice(1).flat().filter((value) => value !== null);
    const top = Math.max(...known, 0) * 1.04 || 1;
    const bottom = Math.min(...known, 0) * 1.04;
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
    const end = Math.max(curves.steps.at(-1), 1);
    return new uPlot({
      width: Math.max(box.clientWidth, 120), height: 190, series, hooks: hook, bands: bands.length ? bands : undefined,
      legend: { show: false },
      cursor: { sync: { key: "steps" }, y: false, drag: { x: false, y: false }, points: { show: false } },
      scales: { x: { time: false, range: [Math.min(curves.steps[0], end - 1), end] }, y: { range: chart.share ? [0, 1] : [bottom, top] } },
      axes: [{ ...axis, size: 28, grid: { show: false }, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 1e6] },
             { ...axis, size: 46, values: (_, splits) => splits.map((value) => (Math.abs(value) >= 1e5 ? value.toExponential(0) : String(+value.toFixed(6)))) }],
      padding: [6, 14, 0, 0],
    }, data, box);
  };

  const redraw = () => {
    boxes.forEach((box, at) => {
      if (drawn[at]) drawn[at].destroy();
      drawn[at] = draw(box, at);
      legend(curves.charts[at], at)(null);
    });
  };
  redraw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  if (boxes.length) {
    let width = boxes[0].clientWidth;
    new ResizeObserver(() => {
      if (boxes[0].clientWidth === width || document.documentElement.classList.contains("printing")) return;
      width = boxes[0].clientWidth;
      drawn.forEach((plot, at) => plot.setSize({ width: Math.max(boxes[at].clientWidth, 120), height: 190 }));
    }).observe(boxes[0]);
  }
  const printing = (on) => {
    document.documentElement.classList.toggle("printing", on);
    redraw();
    if (on) document.querySelectorAll("#provenance details").forEach((part) => { part.open = true; });
  };
  addEventListener("beforeprint", () => printing(true));
  addEventListener("afterprint", () => printing(false));

  // ---- completions

  const list = byId("list");
  if (!list) return;
  const PAGE = 20;
  const form = document.querySelector(".filters");
  const count = byId("count");
  const more = byId("more");
  const tiles = [...document.querySelectorAll("[data-kind]")];
  let items = [];
  let matching = [];
  let visible = 0;
  let kind = "";

  const unpack = async (text) => {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  };

  // lower case of the same length, so that what is found stands where it is marked: "İ" would become two characters
  const lower = (text) => {
    const low = text.toLowerCase();
    return low.length === text.length ? low : [...text].map((c) => (c.toLowerCase().length === c.length ? c.toLowerCase() : c)).join("");
  };

  const everyText = (item) =>
    [item.prompt, item.gold, ...item.sides.flatMap((side) => side.completions.flatMap((one) => [one.text, one.answer]))];

  const marked = (node, text, wanted) => {
    let from = 0;
    const low = wanted ? lower(text) : "";
    for (let at = wanted ? low.indexOf(wanted) : -1; at >= 0; at = low.indexOf(wanted, from)) {
      node.append(text.slice(from, at), make("mark", "", text.slice(at, at + wanted.length)));
      from = at + wanted.length;
    }
    node.append(text.slice(from));
    return node;
  };

  const completionNode = (one, wanted) => {
    const node = make("div", "completion");
    node.append(marked(make("pre", one.text ? "" : "small"), one.text || "(empty)", wanted));
    const facts = make("div", "facts small");
    const fact = (name, value) => {
      const span = make("span", "", `${name} `);
      span.append(make("b", "", value));
      facts.append(span);
    };
    for (const [name, value] of Object.entries(one.rewards)) fact(name, value === null ? "not judged" : told(value));
    if (one.answer !== null) fact("answer read", one.answer);
    if (one.tokens !== null) fact("tokens", String(one.tokens));
    if (one.truncated) facts.append(make("span", "cut", "truncated"));
    if (one.times > 1) facts.append(make("span", "", `${one.times} times`));
    node.append(facts);
    return node;
  };

  const sideNode = (item, side, wanted) => {
    const node = make("section", "side");
    const before = item.data === "held-out" ? (side.step ? `after step ${side.step}` : "before training") : `step ${side.step}`;
    const total = side.total > 1 ? `, ${side.total} completions` : "";
    node.append(make("h3", "", before + total));
    const [first, ...others] = side.completions;
    node.append(completionNode(first, wanted));
    if (others.length) {
      const rest = make("details");
      rest.append(make("summary", "", `${others.length} different one${others.length > 1 ? "s" : ""} more`));
      rest.append(...others.map((one) => completionNode(one, wanted)));
      rest.open = Boolean(wanted) && others.some((one) => lower(one.text).includes(wanted));
      node.append(rest);
    }
    return node;
  };

  const itemNode = (item, wanted) => {
    const node = make("article", "prompt");
    const head = make("div", "head small");
    if (item.kind) head.append(make("span", `kind ${item.kind}`, item.kind));
    const rates = item.rates.filter((rate) => rate !== null).map((rate) => told(rate));
    if (rates.length) head.append(make("span", "", `pass rate ${rates.join(" → ")}`));
    if (item.row !== null) head.append(make("span", "", `row ${item.row}`));
    if (item.gold !== null) head.append(marked(make("span", "", "gold "), item.gold, wanted));
    const sides = make("div", "sides");
    sides.append(...item.sides.map((side) => sideNode(item, side, wanted)));
    if (item.sides.length === 1) sides.append(make("p", "small", item.data === "training" ? "seen at this step only" : "not measured a second time"));
    node.append(head, marked(make("pre"), item.prompt, wanted), sides);
    return node;
  };

  const rewardTest = () => {
    const name = byId("reward").value;
    const wanted = Number.parseFloat(byId("value").value);
    if (!name || Number.isNaN(wanted)) return () => true;
    const compare = { ge: (a) => a >= wanted, le: (a) => a <= wanted, eq: (a) => Math.abs(a - wanted) < 1e-9 }[byId("how").value];
    const value = (one) => (name === "tokens" ? one.tokens : Object.hasOwn(one.rewards, name.slice(2)) ? one.rewards[name.slice(2)] : null);
    const side = byId("side").value === "last" ? (item) => item.sides.at(-1) : (item) => item.sides[0];
    return (item) => side(item).completions.some((one) => value(one) !== null && compare(value(one)));
  };

  const wantedText = () => lower(byId("search").value.trim());

  const showMore = () => {
    const next = matching.slice(visible, visible + PAGE);
    list.append(...next.map((item) => itemNode(item, wantedText())));
    visible += next.length;
    more.hidden = visible >= matching.length;
    more.textContent = `Show ${Math.min(PAGE, matching.length - visible)} more`;
  };

  const filter = () => {
    const chosen = form.querySelector("input[name=data]:checked");
    const data = kind ? "held-out" : chosen ? chosen.value : items.length ? items[0].data : "";
    const wanted = wantedText();
    const passes = rewardTest();
    const all = items.filter((item) => item.data === data);
    matching = all.filter((item) => (!kind || item.kind === kind) && passes(item) && (!wanted || item.searched.includes(wanted)));
    tiles.forEach((tile) => tile.setAttribute("aria-pressed", String(tile.dataset.kind === kind)));
    count.textContent = `${matching.length} of ${all.length} ${data} prompts${kind ? `, ${kind}` : ""}`;
    list.replaceChildren();
    visible = 0;
    showMore();
  };

  const heldOut = () => items.some((item) => item.data === "held-out");
  tiles.forEach((tile) => tile.addEventListener("click", () => {
    if (!heldOut()) return;
    kind = kind === tile.dataset.kind ? "" : tile.dataset.kind;
    const radio = form.querySelector("input[value=held-out]");
    if (radio) radio.checked = true;
    filter();
    if (kind) byId("completions").scrollIntoView();
  }));
  form.addEventListener("input", (event) => {
    if (event.target.name === "data") kind = "";
    filter();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("reset", () => { kind = ""; setTimeout(filter); });
  more.addEventListener("click", showMore);

  unpack(byId("completion-data").textContent).then((found) => {
    items = found;
    for (const item of items) item.searched = lower(everyText(item).filter(Boolean).join("\n"));
    filter();
  }, () => { count.textContent = "The completions cannot be unpacked by this browser."; });
})();
