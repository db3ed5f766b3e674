// What is asked of freshetd, and the part of /history that the charts show, which grows by what is new.
const ANSWER_MS = 5000;
export const POINTS = { 1: 600, 10: 720, 60: 1440 }; // of a resolution, by its step in seconds

// {code, body}; the body of a refusal has `error`.
export async function ask(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS) });
  const body = answer.ok ? await answer.json() : await answer.json().catch(() => ({ error: `${path}: ${answer.status}` }));
  return { code: answer.status, body };
}

export async function get(path) {
  const { code, body } = await ask(path);
  if (code !== 200) throw new Error(body.error ?? `${path}: ${code}`);
  return body;
}

// The history at one resolution: `values[column][point]`, of which the first is of second `first`.
export const history = { step: 1, begin_ms: 0, second: -1, first: 0, columns: [], values: [] };

export function forget(step) {
  Object.assign(history, { step, second: -1, first: 0, columns: [], values: [] });
}

export async function followHistory() {
  const { step, second } = history, since = Math.max(0, second);
  const got = await get(`/history?step=${step}&since=${since}`);
  if (step !== history.step || second !== history.second) return followHistory(); // another span was chosen meanwhile
  const another = got.second < history.second || Math.abs(got.begin_ms - history.begin_ms) > 5000;
  if (another && history.second >= 0) { // the daemon was started again, or its clock was set
    location.reload(); // the model may be another one
    forget(step);
    history.begin_ms = got.begin_ms;
    return followHistory();
  }
  const { first, values } = got;
  if (history.second < 0) Object.assign(history, { first, columns: got.columns, values: got.columns.map(() => []) });
  const at = Math.max(0, (first - history.first) / step);
  history.values.forEach((column, c) => {
    while (column.length < at) column.push(null);
    column.splice(at, column.length, ...values[c]);
    column.splice(0, column.length - POINTS[step]);
  });
  history.begin_ms = got.begin_ms;
  history.second = got.second;
  history.first = first + (values[0].length - history.values[0].length) * step;
}

export function column(name, task, halfLife) {
  const c = history.columns.findIndex((one) => one.name === name && one.task === task && one.half_life === halfLife);
  return c < 0 ? [] : history.values[c];
}

export const newest = (values) => values[values.length - 1] ?? null;
