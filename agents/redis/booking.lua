-- Shared part of the scripts that book charges; it precedes each of them, after amounts.lua.
-- The Python model is stream/accounting/ledger.py.

-- Return e -> number of cells and slots with that e, of one policy and date; e as digits.
local function levels_in(key)
  local levels = {}
  for level, places in pairs(fields_of(key)) do
    if places then levels[level] = parse_integer(places, key) end
  end
  return levels
end

-- Return the sum of the `cap` largest e; of all e if the cap is unknown.
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

-- Add to the number of places with a level.
local function add_to_level(levels, level, more)
  local places = get_number(levels, level) + more
  if places < 0 then reject('damaged', levels) end
  set(levels, level, places ~= 0 and text(places))
end

-- Book another charge on a place, in the stored costs and levels.
local function book(costs, levels, place, charge)
  local before = get(costs, place)
  local after = amount(before or '0', costs) + charge
  set_amount(costs, place, after)
  if before then add_to_level(levels, before, -1) end
  add_to_level(levels, digits_of(after), 1)
end

-- Store that a policy has a record of this date.
local function raise_last_date(last, name, date)
  local known = get(last, name)
  if not known or known < date then set(last, name, date) end
end

-- Remove a charge from a place.
local function unbook(costs, levels, place, charge)
  local before = get(costs, place)
  local after = amount(before or '0', costs) - charge
  set_amount(costs, place, after)
  if before then add_to_level(levels, before, -1) end
  if after == ZERO then set(costs, place, false) else add_to_level(levels, digits_of(after), 1) end
end

-- Book many charges, each {place, charge}; one command reads the costs of all places.
local function book_all(costs, levels, charges)
  local places = {}
  for i, one in ipairs(charges) do places[i] = one[1] end
  prefetch(costs, places)
  for _, one in ipairs(charges) do book(costs, levels, one[1], one[2]) end
end

-- Return a policy's stored K; nil if unknown.
local function cap_of(ledger, name)
  local cap = get(ledger, 'cap:' .. name)
  return cap and parse_integer(cap, ledger) or nil
end

-- Return the cost of a policy's part of the day for a user: the `cap` largest charges of HATs, and its reservations.
local function cost_of_day(ledger, name, levels, cap)
  return cost_of(levels, cap, ledger) + get_amount(ledger, 'reserved:' .. name)
end

-- Return whether the cost of day and domain may grow by an amount, under the policy's limits and the stored ones.
local function has_room(ledger, total, added, day_limit, total_limit)
  local function passes(key, field, own)
    local after, stored = get_amount(key, field) + added, get(key, 'limit')
    return (own ~= '' and amount(own, key) < after) or (stored and amount(stored, key) < after)
  end
  return not (passes(ledger, 'cost', day_limit) or passes(total, 'spent', total_limit))
end

-- Set the cost of a policy's part of the day, and add the difference to the day and to the domain's total.
local function set_policy_cost(ledger, total, name, cost)
  local added = cost - get_amount(ledger, 'cost:' .. name)
  if added ~= ZERO then
    set_amount(ledger, 'cost:' .. name, cost)
    add_amount(ledger, 'cost', added)
    add_amount(total, 'spent', added)
  end
end

-- Lower a stored limit to that of a policy that charged: the least limit of a day, and of all days, binds.
local function lower_limit(key, limit)
  if limit == '' then return end
  local stored = get(key, 'limit')
  if not stored or amount(limit, key) < amount(stored, key) then set(key, 'limit', limit) end
end

-- Return the number of places that a query has reserved on a day; nil if that is not decided.
local function places_of(ledger, name, query)
  local stored = get(ledger, 'query:' .. name .. ':' .. query)
  return stored and parse_integer(string.match(stored, '^(%d+)x%d+$') or '', ledger) or nil
end

-- Set the number of places that a query has reserved on a day, each for `epsilon`.
local function set_places(ledger, total, name, query, places, epsilon)
  local each = amount(epsilon, ledger)
  local more = each * places - each * (places_of(ledger, name, query) or 0)
  set(ledger, 'query:' .. name .. ':' .. query, text(places) .. 'x' .. epsilon)
  if more ~= ZERO then
    add_amount(ledger, 'reserved:' .. name, more)
    set_policy_cost(ledger, total, name, get_amount(ledger, 'cost:' .. name) + more)
  end
end

-- Restore the places of a query that hats.budget or an answer reports: the ledger has at least as many from now on.
local function restore_places(ledger, total, name, query, places, epsilon)
  local told = 'told:' .. name .. ':' .. query
  if not get(ledger, told) or get_number(ledger, told) < places then set_number(ledger, told, places) end
  if places > (places_of(ledger, name, query) or -1) then set_places(ledger, total, name, query, places, epsilon) end
end

-- Decide, once and finally, whether the day has room for a query that reads it. Returns 1 if it was not decided before.
-- A cost that is already spent needs no room.
local function reserve(ledger, total, name, query, places, epsilon, day_limit, total_limit, is_spent)
  if places_of(ledger, name, query) then return 0 end
  places = parse_integer(places, ledger)
  if is_spent or has_room(ledger, total, amount(epsilon, ledger) * places, day_limit, total_limit) then
    set_places(ledger, total, name, query, places, epsilon)
    lower_limit(ledger, day_limit)
    lower_limit(total, total_limit)
  else
    set_places(ledger, total, name, query, 0, epsilon)
  end
  return 1
end
