-- After staging.lua and index.lua.
-- List the cells with retained contributions in some slots, and their number of users. Not the number of bytes, which
-- depends on the speeds.
-- KEYS  1 {name:p}:state, 2 slots with retained contributions, then those of each slot; ARGV  the slots
-- Returns cell, users, cell, users, ...; "damaged" also if a digest is wrong: delete.lua

-- Chunks are concatenated, each with its header first: hatcast.stream.fold.packing.stripped_columns.
local function users_of(chunks)
  local users, at = 0, 1
  while at <= #chunks do
    local more, counts, totals, maxima = string.byte(chunks, at + 1, at + 4)
    users, at = users + more, at + 5 + more * (counts + totals + maxima)
  end
  return users
end

local users, answer = {}, {}
for i, slot in ipairs(ARGV) do
  local key = KEYS[2 + i]
  check_retained(slot, KEYS[2], key)
  for cell, stored in pairs(fields_of(key)) do
    local chunks = string.sub(stored, 1, -9)
    if string.sub(redis.sha1hex(key .. '/' .. cell .. chunks), 1, 8) ~= string.sub(stored, -8) then
      reject('damaged', key)
    else
      users[cell] = (users[cell] or 0) + users_of(chunks)
    end
  end
end
for cell, number in pairs(users) do
  answer[#answer + 1] = cell
  answer[#answer + 1] = number
end
return write_all(answer)
