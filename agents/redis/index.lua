-- After staging.lua.
-- The index of a partition. KEYS[1] is its state, which counts the entries of the other hashes: one with another number
-- of entries is damaged, and one that is missing is not taken for empty.

local function check_entries(key, number)
  local found = run_read('HLEN', key)
  if found and found ~= number then reject('damaged', key) end
end

-- Check the cells of a slot. Returns its end and their number; '' and 0 if the slot has none.
local function check_slot(slot, hats)
  local ends, cells = string.match(get(KEYS[1], 'slot:' .. slot) or ' 0', '^(%d*) (%d+)$')
  if not ends then reject('damaged', KEYS[1]) end
  check_entries(hats, tonumber(cells))
  return ends, tonumber(cells)
end

-- Check the retained contributions of a slot. Returns the number of their cells.
local function check_retained(slot, kept, hats)
  check_entries(kept, get_number(KEYS[1], 'kept'))
  local cells = get_number(kept, slot)
  check_entries(hats, cells)
  return cells
end

-- Store the number of a slot's cells with retained contributions.
local function set_retained(slot, kept, cells)
  local more = (cells > 0 and 1 or 0) - (get(kept, slot) and 1 or 0)
  set(kept, slot, cells > 0 and text(cells))
  if more ~= 0 then increase(KEYS[1], 'kept', more) end
end
