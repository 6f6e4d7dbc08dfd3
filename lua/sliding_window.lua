-- Sliding window: the window before counts by the share that still overlaps, the current one in full.
-- The Rust twin is src/decision/sliding_window.rs.
--
-- State  string `index:previous:current`: the window's number (its start / its length), units taken in the window before
--        and in this one (at least 1); it expires exactly at the end of the next window, (index + 2) * window
-- ARGV   $A + 0 limit    units, 1 .. 1,000,000,000, with limit * window <= 2^53 - 1
--        $A + 1 window   milliseconds, 1 .. 31,622,400,000 (366 days)
--        $A + 2 cost     units per request, at least 1

--- numbers
limit, window, cost

--- arguments
$include limit, window, cost
if limit_$N * window_$N > 9007199254740991 then
  return {-2, now_us, $N}
end

--- check
local at_$N, index_$N, previous_$N, current_$N, same_$N = now, 0, 0, 0, false
$include string
if stored_$N then
  if #stored_$N > 50 then return {-5, now_us, $N} end
  local i, p, c = string.match(stored_$N, '^(%d+):(%d+):([1-9]%d*)$')
  if not i or find(stored_$N, '^0%d') or find(stored_$N, ':0%d') or #i > 13 or #p > 16 or #c > 16 then
    return {-5, now_us, $N}
  end
  i, p, c = tonumber(i), tonumber(p), tonumber(c)
  if p * window_$N > 9007199254740991 or c * window_$N > 9007199254740991 then return {-5, now_us, $N} end
  local start = i * window_$N
  if start > now + 1000 then return {-7, now_us, $N} end
  if expires_$N ~= start + 2 * window_$N then return {-6, now_us, $N} end
  -- A clock that stepped back stops at the window's start.
  if start > now then at_$N = start end
  index_$N = math.floor(at_$N / window_$N)
  if i == index_$N then
    previous_$N, current_$N, same_$N = p, c, true
  elseif i + 1 == index_$N then
    previous_$N = c
  end
else
  index_$N = math.floor(now / window_$N)
end
local left_$N = (index_$N + 1) * window_$N - at_$N
local weighted_$N = math.ceil(previous_$N * left_$N / window_$N)
local room_$N = limit_$N - current_$N - weighted_$N
$include fits

--- prepare
local state_$N = string.format('%d:%d:%d', index_$N, previous_$N, current_$N + $CHARGED * cost_$N)
local ends_$N = string.format('%d', (index_$N + 2) * window_$N)

--- write
if same_$N then
  call('SET', KEYS[$N], state_$N, 'KEEPTTL')
else
  call('SET', KEYS[$N], state_$N, 'PXAT', ends_$N)
end
current_$N = current_$N + $CHARGED * cost_$N

--- reply
local remaining_$N = limit_$N - current_$N - weighted_$N
if remaining_$N < 0 then remaining_$N = 0 end
local retry_$N, reset_$N = 0, 0
if cost_$N > limit_$N then
  retry_$N = -1
elseif cost_$N > remaining_$N then
  local room = limit_$N - cost_$N - current_$N
  if room >= 0 then
    retry_$N = left_$N - math.floor(room * window_$N / previous_$N)
  else
    retry_$N = left_$N + window_$N - math.floor((limit_$N - cost_$N) * window_$N / current_$N)
  end
end
if current_$N > 0 then
  reset_$N = left_$N + window_$N
elseif previous_$N > 0 then
  reset_$N = left_$N
end
