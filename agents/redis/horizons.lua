-- States of running sums, shared by the scripts that store, take back or end them; after staging.lua.
-- A cell's state follows from what was sent of its horizon. Where that is not certain the horizon is closed, for good.
-- `before`: cell -> release_id, a newline, and the state before that release (NONE for none), until it is marked.
local NONE = 'none'  -- not '': a state that was cut to nothing would count as none, and be drawn anew

-- Close a horizon: no state of it changes any more. The first reason counts.
local function close_horizon(horizons, horizon, status)
  if not get(horizons, 'closed:' .. horizon) then set(horizons, 'closed:' .. horizon, status) end
end

-- Return whether a state may be stored: its horizon is open, and the state before is the one that it was drawn from.
local function follows(states, horizons, horizon, cell, digest)
  local state = get(states, cell)
  return not get(horizons, 'closed:' .. horizon) and (state and redis.sha1hex(state) or '') == digest
end

-- Store the state of a cell after a release.
local function store_state(states, before, horizons, horizon, cell, id, state)
  local known = get(states, cell)
  if not known then increase(horizons, 'cells:' .. horizon, 1) end
  set(before, cell, id .. '\n' .. (known or NONE))
  set(states, cell, state)
end

-- Take back the state after a release that nobody has seen; close its horizon if the state before is not known.
local function take_back_state(states, before, horizons, horizon, cell, id)
  local known = get(before, cell) or ''
  local state = string.sub(known, 1, #id + 1) == id .. '\n' and string.sub(known, #id + 2) or ''
  if state == '' then
    close_horizon(horizons, horizon, 'incomplete')
    return
  end
  if state == NONE then increase(horizons, 'cells:' .. horizon, -1) end
  set(states, cell, state ~= NONE and state)
  set(before, cell, false)
end
