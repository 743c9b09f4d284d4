-- The cells of which something is kept in some slots, and how many bytes that is.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, then the slots
-- Returns cell, bytes, cell, bytes, ...
local found, bytes = {}, {}
for i = 2, #ARGV do
  local key = ARGV[1] .. 'k:' .. ARGV[i]
  for _, cell in ipairs(redis.call('HKEYS', key)) do
    if not bytes[cell] then found[#found + 1] = cell end
    bytes[cell] = (bytes[cell] or 0) + redis.call('HSTRLEN', key, cell)
  end
end
local answer = {}
for _, cell in ipairs(found) do
  answer[#answer + 1] = cell
  answer[#answer + 1] = bytes[cell]
end
return answer
