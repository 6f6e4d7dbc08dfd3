-- Sliding log: at most `limit` units in any window, exactly.
-- The Rust twin is src/decision/sliding_log.rs.
--
-- State  sorted set, a member a unit: its score is the microsecond at which it was taken (never decreasing, equal ones
--        allowed), the member a label of 16 digits that strictly increases, so that units of one instant stay apart;
--        it expires exactly when the last unit does, rounded up to a millisecond
-- ARGV   $A + 0 limit    units, 1 .. 1,000,000,000
--        $A + 1 window   milliseconds, 1 .. 31,622,400,000 (366 days)
--        $A + 2 cost     units per request, at least 1

--- numbers
limit, window, cost

--- arguments
$include limit, window, cost
window_$N = window_$N * 1000

--- check
local at_$N, alive_$N, size_$N, label_$N, last_$N = now_us, 0, 0, 0, 0
local newest_$N = redis.pcall('ZRANGE', KEYS[$N], -1, -1, 'WITHSCORES')
if newest_$N.err then
  if find(newest_$N.err, '^WRONGTYPE') then return {-3, now_us, $N} end
  return newest_$N
end
if newest_$N[1] then
  local expires = call('PEXPIRETIME', KEYS[$N])
  if expires == -1 then return {-4, now_us, $N} end
  local label, score = newest_$N[1], newest_$N[2]
  if not find(label, '^%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d%d$') or label > '9007199254740991'
      or #score > 16 or not find(score, '^[1-9]%d*$') then
    return {-5, now_us, $N}
  end
  label_$N, last_$N = tonumber(label), tonumber(score)
  if last_$N > now_us + 1000000 then return {-7, now_us, $N} end
  if expires ~= math.ceil((last_$N + window_$N) / 1000) then return {-6, now_us, $N} end
  -- A clock that stepped back stops at the log's latest instant.
  if last_$N > now_us then at_$N = last_$N end
  size_$N = call('ZCARD', KEYS[$N])
  alive_$N = call('ZCOUNT', KEYS[$N], string.format('(%d', at_$N - window_$N), '+inf')
end
local room_$N = limit_$N - alive_$N
$include fits

--- prepare
local units_$N = $CHARGED * cost_$N
local score_$N, ends_$N = string.format('%d', at_$N), string.format('%d', math.ceil((at_$N + window_$N) / 1000))
local dead_$N = string.format('%d', at_$N - window_$N)
if label_$N < at_$N then label_$N = at_$N - 1 end
local pairs_$N = {}
for unit = 1, units_$N do
  pairs_$N[2 * unit - 1], pairs_$N[2 * unit] = score_$N, string.format('%016d', label_$N + unit)
end

--- write
-- The expiry goes first: if it is forbidden, nothing was written. The set is never emptied before something is added, since
-- an empty set is deleted with its expiry, and the next add would make a key without one.
call('PEXPIREAT', KEYS[$N], ends_$N)
for first = 1, 2 * units_$N, 4000 do
  call('ZADD', KEYS[$N], unpack(pairs_$N, first, math.min(first + 3999, 2 * units_$N)))
end
if alive_$N < size_$N then
  call('ZREMRANGEBYSCORE', KEYS[$N], '-inf', dead_$N)
end
-- Again, also for a key that was there: on Redis 7.0 the clock runs on within a script, and an expiry that had passed by the
-- first time deleted the key, which ZADD then made anew without one.
call('PEXPIREAT', KEYS[$N], ends_$N)
alive_$N, size_$N, last_$N = alive_$N + units_$N, alive_$N + units_$N, at_$N

--- reply
local remaining_$N = limit_$N - alive_$N
if remaining_$N < 0 then remaining_$N = 0 end
local retry_$N, reset_$N = 0, 0
if cost_$N > limit_$N then
  retry_$N = -1
elseif cost_$N > remaining_$N then
  -- So many of the oldest units must have gone; the last of them decides.
  local rank = size_$N - alive_$N + alive_$N + cost_$N - limit_$N - 1
  local gone = call('ZRANGE', KEYS[$N], rank, rank, 'WITHSCORES')
  retry_$N = math.ceil((tonumber(gone[2] or last_$N) + window_$N - at_$N) / 1000)
end
if alive_$N > 0 then
  reset_$N = math.ceil((last_$N + window_$N - at_$N) / 1000)
end
