// JSON parser that keeps numbers as text, so that the page shows the published digits.
// JSON.parse reads 21.870 as 21.87; parseExact returns "21.870". Number(...) is for drawing only.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export function parseExact(text) {
  return JSON.parse(text.replace(TOKEN, (token) => (token[0] === '"' ? token : `"${token}"`)));
}
