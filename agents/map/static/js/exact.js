// JSON whose numbers stay the text that they are: what is shown is then what was published, digit by digit.
// JSON.parse makes 21.870 into 21.87; here it comes out as "21.870". Number(...) is for drawing only.

const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

export function parseExact(text) {
  return JSON.parse(text.replace(TOKEN, (token) => (token[0] === '"' ? token : `"${token}"`)));
}
