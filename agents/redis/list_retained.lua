-- List the cells with retained contributions in some slots, and their number of users. Not the number of bytes, which
-- depends on the speeds.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, then the slots
-- Returns cell, users, cell, users, ...; {"damaged", key} if a digest is wrong: delete.lua

-- Chunks are concatenated, each with its header first: hatcast.stream.fold.packing.stripped_columns.
local function users_of(chunks)
  local users, at = 0, 1
  while at <= #chunks do
    local more, counts, totals, maxima = string.byte(chunks, at + 1, at + 4)
    users, at = users + more, at + 5 + more * (counts + totals + maxima)
  end
  return users
end

local found, users = {}, {}
for i = 2, #ARGV do
  local key = ARGV[1] .. 'k:' .. ARGV[i]
  for _, cell in ipairs(redis.call('HKEYS', key)) do
    local stored = redis.call('HGET', key, cell)
    local chunks = string.sub(stored, 1, -9)
    if string.sub(redis.sha1hex(key .. '/' .. cell .. chunks), 1, 8) ~= string.sub(stored, -8) then
      return {'damaged', key}
    end
    if not users[cell] then found[#found + 1] = cell end
    users[cell] = (users[cell] or 0) + users_of(chunks)
  end
end
local answer = {}
for _, cell in ipairs(found) do
  answer[#answer + 1] = cell
  answer[#answer + 1] = users[cell]
end
return answer
