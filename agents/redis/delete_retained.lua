-- Delete retained contributions whose queries are answered.
-- KEYS[1]  {name:p}:state
-- ARGV     prefix, then for each HAT: slot, cell
local deleted = {}
for i = 2, #ARGV, 2 do
  local slot, cell = ARGV[i], ARGV[i + 1]
  deleted[slot] = deleted[slot] or 0
  if get(ARGV[1] .. 'k:' .. slot, cell) then
    deleted[slot] = deleted[slot] + 1
    set(ARGV[1] .. 'k:' .. slot, cell, false)
  end
end
for slot, cells in pairs(deleted) do
  local key = ARGV[1] .. 'k:' .. slot
  if is_a('hash', key) and redis.call('HLEN', key) == cells then set(ARGV[1] .. 'kept', slot, false) end
end
return write_all('OK')
