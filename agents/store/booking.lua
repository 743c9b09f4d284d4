-- What the scripts that book charges share: it stands before each of them, behind amounts.lua.    [stream/accounting.py]

-- e -> how many cells and slots have it, of one policy and date; e as digits.
local function levels_in(key)
  local levels = {}
  for level, places in pairs(fields_of(key)) do
    if places then levels[level] = whole(places, key) end
  end
  return levels
end

-- The sum of the `cap` largest e; of all of them while the cap is not known.
local function cost_of(levels, cap, key)
  local list, cost, left = {}, ZERO, cap or math.huge
  for level, places in pairs(levels) do list[#list + 1] = {amount(level, key), places} end
  table.sort(list, function(a, b) return b[1] < a[1] end)
  for _, level in ipairs(list) do
    local taken = math.min(left, level[2])
    if taken > 0 then cost, left = cost + level[1] * taken, left - taken end
  end
  return cost
end

-- So many places more have a level.
local function meet(levels, level, more)
  local places = number(levels, level) + more
  if places < 0 then refuse('damaged', levels) end
  set(levels, level, places ~= 0 and text(places))
end

-- Another charge on a place, in the stored costs and levels.
local function book(costs, levels, place, charge)
  local before = get(costs, place)
  local after = amount(before or '0', costs) + charge
  settle_at(costs, place, after)
  if before then meet(levels, before, -1) end
  meet(levels, digits_of(after), 1)
end

-- A policy has a record of this date.
local function later(last, name, date)
  local known = get(last, name)
  if not known or known < date then set(last, name, date) end
end

-- One charge less on a place.
local function unbook(costs, levels, place, charge)
  local before = get(costs, place)
  local after = amount(before or '0', costs) - charge
  settle_at(costs, place, after)
  if before then meet(levels, before, -1) end
  if after == ZERO then set(costs, place, false) else meet(levels, digits_of(after), 1) end
end

-- Many charges, each {place, charge}: what the places have had is read at once.
local function book_all(costs, levels, charges)
  local places = {}
  for i, one in ipairs(charges) do places[i] = one[1] end
  fetch(costs, places)
  for _, one in ipairs(charges) do book(costs, levels, one[1], one[2]) end
end

-- A policy's K, as it is stored; nil while it is not known.
local function cap_of(ledger, name)
  local cap = get(ledger, 'cap:' .. name)
  return cap and whole(cap, ledger) or nil
end

-- What a policy's part of the day costs a user: the `cap` largest charges of HATs, and what its queries have reserved.
local function cost_of_day(ledger, name, levels, cap)
  return cost_of(levels, cap, ledger) + sum(ledger, 'reserved:' .. name)
end

-- Whether day and domain may cost so much more, under a policy's limits and under those of all that have charged.
local function has_room(ledger, total, grown, day_limit, total_limit)
  local function passes(key, field, own)
    local after, stored = sum(key, field) + grown, get(key, 'limit')
    return (own ~= '' and amount(own, key) < after) or (stored and amount(stored, key) < after)
  end
  return not (passes(ledger, 'cost', day_limit) or passes(total, 'spent', total_limit))
end

-- A policy's part of the day costs `cost` from now on; the day and the domain's total follow in the same step.
local function settle(ledger, total, name, cost)
  local grown = cost - sum(ledger, 'cost:' .. name)
  if grown ~= ZERO then
    settle_at(ledger, 'cost:' .. name, cost)
    grow(ledger, 'cost', grown)
    grow(total, 'spent', grown)
  end
end

-- Of a policy that charged: the least limit of a day, and of all days, binds.
local function lower(key, limit)
  if limit == '' then return end
  local stored = get(key, 'limit')
  if not stored or amount(limit, key) < amount(stored, key) then set(key, 'limit', limit) end
end

-- How many places a query has on a day, and how many it has from now on, each for `epsilon`.
local function places_of(ledger, name, query)
  local stored = get(ledger, 'query:' .. name .. ':' .. query)
  return stored and whole(string.match(stored, '^(%d+)x%d+$') or '', ledger) or nil
end

local function set_places(ledger, total, name, query, places, epsilon)
  local each = amount(epsilon, ledger)
  local more = each * places - each * (places_of(ledger, name, query) or 0)
  set(ledger, 'query:' .. name .. ':' .. query, text(places) .. 'x' .. epsilon)
  if more ~= ZERO then
    grow(ledger, 'reserved:' .. name, more)
    settle(ledger, total, name, sum(ledger, 'cost:' .. name) + more)
  end
end

-- hats.budget, or an answer, tells that a query has so many places: the ledger has as many from now on, or more.
local function recall_places(ledger, total, name, query, places, epsilon)
  local told = 'told:' .. name .. ':' .. query
  if not get(ledger, told) or number(ledger, told) < places then store(ledger, told, places) end
  if places > (places_of(ledger, name, query) or -1) then set_places(ledger, total, name, query, places, epsilon) end
end

-- A query reads this day: settle, once and for good, whether the day has room for it. 1 if that was open until now.
-- What is spent already needs no room.
local function reserve(ledger, total, name, query, places, epsilon, day_limit, total_limit, is_spent)
  if places_of(ledger, name, query) then return 0 end
  places = whole(places, ledger)
  if is_spent or has_room(ledger, total, amount(epsilon, ledger) * places, day_limit, total_limit) then
    set_places(ledger, total, name, query, places, epsilon)
    lower(ledger, day_limit)
    lower(total, total_limit)
  else
    set_places(ledger, total, name, query, 0, epsilon)
  end
  return 1
end
