// Runs in every page before the page's own scripts: remembers who listens to what, knows when the page
// has come to rest, and writes the page down as text, one line an element. Ids live in a map outside the
// DOM, so no text that gets into the page can forge one.
(() => {
  if (window.__arlas) return;

  // --- what the page's scripts do ---------------------------------------------------------------------

  const heard = new WeakMap();
  const addEventListener = EventTarget.prototype.addEventListener;
  EventTarget.prototype.addEventListener = function (type, ...rest) {
    if (this instanceof Element) {
      if (!heard.has(this)) heard.set(this, new Set());
      heard.get(this).add(type);
    }
    return addEventListener.call(this, type, ...rest);
  };
  const hears = (el, types) => types.some((type) => heard.get(el)?.has(type) || el['on' + type]);

  const SHORT = 500; // ms; longer timers are the page's own clockwork, not the effect of an action
  const pending = new Set();
  const setTimeout = window.setTimeout.bind(window);
  const clearTimeout = window.clearTimeout.bind(window);
  window.setTimeout = (call, delay, ...args) => {
    if (typeof call !== 'function' || delay > SHORT) return setTimeout(call, delay, ...args);
    const id = setTimeout(() => { pending.delete(id); call.apply(window, args); }, delay);
    pending.add(id);
    return id;
  };
  window.clearTimeout = (id) => { pending.delete(id); clearTimeout(id); };
  const ticking = new Set();
  const setInterval = window.setInterval.bind(window);
  const clearInterval = window.clearInterval.bind(window);
  window.setInterval = (...args) => { const id = setInterval(...args); ticking.add(id); return id; };
  window.clearInterval = (id) => { ticking.delete(id); clearInterval(id); };
  const moving = () => pending.size > 0 || (window.jQuery?.timers?.length ?? 0) > 0 ||
    document.getAnimations().some((a) => a.playState === 'running' && a.effect.getComputedTiming().endTime < 2000);

  async function settle(limit) {
    const end = performance.now() + limit;
    while (moving() && performance.now() < end) await new Promise((go) => setTimeout(go, 10));
  }

  // Sockets end at a proxy that does not exist before any route sees them; the try is evidence all the same.
  const sockets = [];
  for (const name of ['WebSocket', 'WebTransport', 'RTCPeerConnection']) {
    if (!window[name]) continue;
    window[name] = new Proxy(window[name], {
      construct(target, args) {
        const to = typeof args[0] === 'object' ? JSON.stringify(args[0]) : String(args[0]);
        sockets.push(`${name.toUpperCase()} ${to}`);
        return new target(...args);
      },
    });
  }

  // --- ids ----------------------------------------------------------------------------------------------

  let ids = new WeakMap(), elements = new Map(), masked = new Set(), planted = null, told = false, alive = false;
  function idOf(el) {
    if (!ids.has(el)) {
      const id = String(elements.size + 1);
      ids.set(el, id);
      elements.set(id, el);
    }
    return ids.get(el);
  }
  function find(id) {
    const el = elements.get(id);
    return el?.isConnected ? el : null;
  }

  // --- words ----------------------------------------------------------------------------------------------

  const clean = (text) => (text ?? '').replace(/[\s\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, ' ').trim();
  const short = (text, head = 400, tail = 200) =>
    text.length <= head + tail ? text : text.slice(0, head) + ' … ' + text.slice(-tail);
  const quote = (text) => JSON.stringify(short(clean(text)));
  const COLORS = {
    '0, 0, 0': 'black', '255, 255, 255': 'white', '255, 0, 0': 'red', '0, 128, 0': 'green', '0, 255, 0': 'lime',
    '0, 0, 255': 'blue', '255, 255, 0': 'yellow', '0, 255, 255': 'cyan', '255, 0, 255': 'magenta',
    '255, 165, 0': 'orange', '128, 0, 128': 'purple', '255, 192, 203': 'pink', '128, 128, 128': 'grey',
  };
  function color(value) {
    const part = /^rgb\((\d+, \d+, \d+)\)$/.exec(value);
    return part ? COLORS[part[1]] ?? `rgb(${part[1].replace(/ /g, '')})` : null;
  }

  // --- what an element is -----------------------------------------------------------------------------------

  const ROLES = new Set(['button', 'link', 'tab', 'menuitem', 'option', 'slider', 'spinbutton', 'treeitem',
    'checkbox', 'radio', 'switch', 'textbox', 'combobox', 'menuitemcheckbox', 'menuitemradio']);
  const CONTROLS = 'input, select, textarea, button, a, [contenteditable=true]';
  const SHAPES = new Set(['rect', 'circle', 'ellipse', 'polygon', 'polyline', 'line', 'path']);
  const WRAPPERS = new Set(['html', 'body', 'form', 'table', 'tbody', 'thead', 'svg', 'g', 'fieldset']);
  const HANDLES = /\bui-(draggable|droppable|sortable-handle|selectee|resizable-se)\b/;
  const NOISE = /^(bold|hide|(ui|wheelnav)-(button|widget|corner|state|icon|resizable-handle|menu-item|helper|id)(-.*)?)$/;
  const SKIPPED = new Set(['script', 'style', 'template', 'noscript', 'head', 'title', 'defs', 'br', 'hr', 'option']);

  function visible(el) {
    if (!el.checkVisibility({ visibilityProperty: true })) return false;
    const box = el.getBoundingClientRect();
    return box.width > 1 || box.height > 1 || el.matches('input, textarea') ||
      (getComputedStyle(el).overflow === 'visible' && el.childNodes.length > 0);
  }

  function clickable(el, tag) {
    if (WRAPPERS.has(tag) || el.id === 'wrap' || el.id === 'area') return false;
    if (el.querySelector(CONTROLS) || el.classList.contains('ui-slider')) return false;
    if (el.classList.contains('ui-resizable-handle') && (el.closest('.ui-dialog') || !HANDLES.test(el.className))) return false;
    if (hears(el, ['click', 'mousedown', 'mouseup', 'dblclick']) || HANDLES.test(el.getAttribute('class') ?? '')) return true;
    return getComputedStyle(el).cursor === 'pointer' && getComputedStyle(el.parentElement).cursor !== 'pointer';
  }

  function roleOf(el, tag) {
    if (tag === 'input') {
      const type = el.type;
      if (['button', 'submit', 'reset', 'image'].includes(type)) return 'button';
      if (type === 'checkbox' || type === 'radio') return type;
      if (type === 'range') return 'slider';
      return el.getAttribute('role') === 'spinbutton' || type === 'number' ? 'spinbutton' : 'textbox';
    }
    if (tag === 'textarea' || el.getAttribute('contenteditable') === 'true') return 'textbox';
    if (tag === 'select') return el.multiple || el.size > 1 ? 'listbox' : 'combobox';
    if (tag === 'button') return 'button';
    const role = el.getAttribute('role');
    if (ROLES.has(role) && !el.querySelector('input, select, textarea')) return role;
    if (tag === 'a') return 'link';
    if (tag === 'canvas') return tag;
    if (el.classList.contains('ui-slider-handle')) return 'slider';
    if (SHAPES.has(tag) && el.ownerSVGElement) return tag;
    if (tag === 'label' && el.control) return null;
    const acts = clickable(el, tag);
    if (tag === 'li') return acts || !el.querySelector(CONTROLS + ', li, [role]') ? 'listitem' : null;
    if (!acts) return null;
    return { td: 'cell', th: 'cell', tr: 'row' }[tag] ?? 'clickable';
  }

  const TYPED = new Set(['textbox', 'combobox', 'listbox', 'spinbutton', 'slider']);

  function labelOf(el) {
    const named = el.getAttribute('aria-label') ||
      (el.getAttribute('aria-labelledby') ?? '').split(/\s+/).map((id) => id && document.getElementById(id)?.innerText).join(' ');
    if (clean(named)) return named;
    const labels = [...(el.labels ?? [])].map((label) => label.innerText).join(' ');
    if (clean(labels)) return labels;
    if (el.matches('input[type=button], input[type=submit], input[type=reset]')) return el.value;
    return el.alt || el.placeholder || el.title || el.getAttribute('title') || '';
  }

  // An icon without any text is told by its class or id, as a person tells it by its looks.
  function looks(el) {
    const source = el.getAttribute('src')?.split('/').pop().split('.')[0];
    const words = [...el.classList].filter((word) => !NOISE.test(word)).join(' ');
    return source || words || (NOISE.test(el.id) ? '' : el.id);
  }

  function valueOf(el, role) {
    if (role === 'slider') {
      const host = el.closest('.ui-slider');
      return host ? String(jQuery(host).slider('value')) : el.value ?? el.getAttribute('aria-valuenow');
    }
    if (!TYPED.has(role)) return null;
    if (el.tagName === 'SELECT') return [...el.selectedOptions].map((o) => clean(o.label)).join(', ');
    const value = el.value ?? el.innerText;
    return el.type === 'password' || masked.has(el) ? '•'.repeat(value.length) : value;
  }

  function geometry(el) {
    const box = el.getBoundingClientRect();
    const at = `${Math.round(box.x)},${Math.round(box.y)}`;
    return `at=${at} size=${Math.round(box.width)}x${Math.round(box.height)}`;
  }

  function traits(el, role) {
    const said = [];
    const value = valueOf(el, role);
    if (value) said.push(`value=${quote(value)}`);
    if (['date', 'time', 'month', 'week', 'color', 'datetime-local'].includes(el.type)) said.push(`type=${el.type}`);
    if (el.tagName === 'SELECT') {
      const options = [...el.options].map((o) => JSON.stringify(clean(o.label)));
      said.push(`options=${options.slice(0, 60).join(', ')}${options.length > 60 ? ', …' : ''}`);
    }
    if (el.checked || el.getAttribute('aria-checked') === 'true') said.push('checked');
    if (el.getAttribute('aria-selected') === 'true') said.push('selected');
    const expanded = el.getAttribute('aria-expanded');
    if (expanded) said.push(expanded === 'true' ? 'expanded' : 'collapsed');
    if (el.disabled || el.getAttribute('aria-disabled') === 'true') said.push('disabled');
    if (el.ownerSVGElement) {
      const style = getComputedStyle(el);
      const fill = style.fill === 'none' ? style.stroke : style.fill;
      if (role === 'polygon') said.push(`sides=${el.points.numberOfItems}`);
      said.push(`color=${el.getAttribute('fill') || color(fill) || fill}`, geometry(el));
    } else if (role === 'canvas') {
      said.push(geometry(el));
    } else if (role === 'clickable' && !clean(el.innerText)) {
      const background = color(getComputedStyle(el).backgroundColor);
      if (background) said.push(`color=${background}`);
    }
    const icon = role === 'menuitem' && /\bui-icon-\S+/.exec(el.querySelector(':scope > .ui-icon, :scope > * > .ui-icon')?.className);
    if (icon) said.push(`icon=${icon[0]}`);
    if (document.activeElement === el) said.push('focused');
    return said;
  }

  // --- the page as lines ----------------------------------------------------------------------------------

  function observe(idFirst) {
    const lines = []; // ids are given at the end, in the order of the lines that remain
    const spent = new Set(); // text nodes that already stand in a control's name

    const line = (el, role, name) => lines.push({ el, role, name: clean(name) });
    const say = (text, role = 'text') => { if (clean(text)) line(null, role, text); };
    function written({ el, role, name }) {
      const words = [role, ...(name ? [quote(name)] : []), ...(el ? traits(el, role) : [])].join(' ');
      if (!el) return words;
      return idFirst ? `[${idOf(el)}] ${words}` : `${words} [${idOf(el)}]`;
    }

    // Walks the children of `parent`; `run` gathers inline text until something else comes.
    function walk(parent, run, flush) {
      for (const node of parent.childNodes) {
        if (node.nodeType === Node.TEXT_NODE) {
          if (!spent.has(node)) run.text += node.data;
          continue;
        }
        if (node.nodeType !== Node.ELEMENT_NODE) continue;
        const tag = node.tagName.toLowerCase();
        if (tag === 'br' || tag === 'hr') flush();
        if (node.id === 'query' && told) { flush(); say(node.textContent); continue; }
        if (SKIPPED.has(tag) || node.id === 'query' || !visible(node)) continue;
        if (run.inside && tag === 'svg') continue; // an icon of the element around it
        const role = roleOf(node, tag);
        if (role) emit(node, tag, role, run, flush);
        else if (tag === 'img') run.text += ` ${node.alt || node.title || looks(node)} `;
        else if (tag === 'tr' && !node.querySelector(CONTROLS) && plain(node)) {
          flush();
          const cells = [...node.cells].map((cell) => clean(cell.innerText));
          if (cells.some(Boolean)) say(cells.join(' | '), 'row');
        } else if (tag === 'label' && node.control) {
          walk(node, { text: '' }, () => {}); // its text is the control's name
        } else {
          const inline = getComputedStyle(node).display.startsWith('inline');
          if (!inline) flush();
          walk(node, run, flush);
          if (!inline) flush();
        }
      }
    }
    const plain = (row) => ![...row.querySelectorAll('*')].some((el) => roleOf(el, el.tagName.toLowerCase()));

    function emit(el, tag, role, run, flush) {
      let name = labelOf(el);
      if ((role === 'checkbox' || role === 'radio') && !clean(name)) {
        const next = el.nextSibling;
        if (next?.nodeType === Node.TEXT_NODE && clean(next.data)) { name = next.data; spent.add(next); }
      }
      if (TYPED.has(role) && (!clean(name) || name === el.placeholder) && clean(run.text)) {
        name = run.text; // the words just before a box are its name
        run.text = '';
      }
      flush();
      if (TYPED.has(role) || tag === 'input' || SHAPES.has(role)) return line(el, role, name);
      const place = lines.length;
      const inner = { text: '', inside: true };
      walk(el, inner, () => { inner.text += ' '; });
      const nested = lines.splice(place);
      const own = clean(inner.text) || clean(name);
      // A frame around other lines is no line of its own, and a tab around its link is one line.
      const link = nested.length === 1 && nested[0].role === 'link' ? nested[0].name : '';
      if (own || link || nested.length === 0) line(el, role, own || link || looks(el));
      if (!link || (own && own !== link)) lines.push(...nested);
    }

    const run = { text: '' };
    const flush = () => { say(run.text); run.text = ''; };
    walk(document.body, run, flush);
    flush();
    return lines.map(written).join('\n');
  }

  // --- texts of outsiders -----------------------------------------------------------------------------------

  const TAGS = 'a b br button center div em form h1 h2 h3 h4 i input label li ol option p select span strong table tbody td textarea th tr u ul'.split(' ');
  const ATTRIBUTES = ['href', 'type', 'value', 'placeholder', 'title', 'action', 'method', 'name', 'checked'];

  function safe(markup) {
    const inert = new DOMParser().parseFromString(markup, 'text/html').body;
    for (const el of [...inert.querySelectorAll('*')]) {
      if (!TAGS.includes(el.localName)) { el.replaceWith(document.createTextNode(el.textContent)); continue; }
      for (const { name, value } of [...el.attributes]) {
        if (!ATTRIBUTES.includes(name) || /^\s*(javascript|data|vbscript):/i.test(value.replace(/[\u0000-\u0020]/g, ''))) el.removeAttribute(name);
      }
    }
    return [...inert.childNodes].map((node) => document.importNode(node, true));
  }

  // Beside the task's own area, so that no script of the page takes the text for its own element.
  function plant(text, markup, first) {
    planted?.remove();
    planted = document.createElement('div');
    planted.append(...(markup ? safe(text) : [text]));
    const area = document.getElementById('area') ?? document.body.firstElementChild;
    first ? area.before(planted) : area.after(planted);
  }

  // --- an episode -----------------------------------------------------------------------------------------

  function begin(mask) {
    ids = new WeakMap();
    elements = new Map();
    masked = new Set(mask.flatMap((selector) => [...document.querySelectorAll(selector)]));
    planted?.remove();
    planted = null;
    sockets.length = 0;
    alive = true;
    tell(null, false);
  }

  // The page's own words for the task are part of the page, before its area or at the end; null hides them.
  function tell(text, behind) {
    const query = document.getElementById('query'), area = document.getElementById('area');
    if (query && area && (told || behind)) behind ? document.body.append(query) : area.before(query);
    told = text !== null;
    if (told) query.textContent = text;
  }

  // Only pages without widgets and running clocks can begin again without being loaded again: the others
  // keep menus, calendars and prices of the last episode.
  const PLAIN = /\/(core|d3\.v3\.min|ui_utils|shapes|jquery)\.js$/;
  const reusable = () => alive && ticking.size === 0 && pending.size === 0 &&
    [...document.scripts].every((script) => !script.src || PLAIN.test(script.src));

  // Resetting by a form, not by value: an area once written to would not show the text of its next episode.
  function tidy() {
    document.activeElement?.blur();
    const form = document.createElement('form');
    form.id = 'arlas-tidy';
    document.body.append(form);
    const boxes = [...document.querySelectorAll('#area input, #area textarea')].filter((el) => !el.form);
    for (const el of boxes) el.setAttribute('form', form.id);
    for (const each of document.forms) each.reset();
    for (const el of boxes) el.removeAttribute('form');
    form.remove();
  }

  // Whether a box holds a single line, and whether it must be typed into, key by key.
  function box(id) {
    const el = find(id);
    return [el.tagName === 'INPUT', el.matches('.ui-autocomplete-input') || hears(el, ['keydown', 'keyup', 'keypress'])];
  }

  async function look(idFirst, limit) {
    if (!alive) return { alive, text: '', done: true, raw: 0, reason: 'the page was left', sockets: [] };
    await settle(limit);
    return {
      alive,
      text: observe(idFirst),
      done: WOB_DONE_GLOBAL,
      raw: WOB_RAW_REWARD_GLOBAL,
      reason: WOB_REWARD_REASON,
      sockets: sockets.splice(0),
    };
  }

  window.__arlas = { begin, box, find, look, plant, reusable, tell, tidy };
})();
