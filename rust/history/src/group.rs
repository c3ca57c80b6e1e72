//! The totals of a group of runs.
//!
//! Each run counts once, by the first terminal event told of it, whatever the order or repetition. Every sum
//! saturates, and none is negative, so the order of the events never shows in it.

use std::collections::HashMap;
use std::collections::hash_map::{Entry, RandomState};
use std::hash::BuildHasher;
use std::sync::Arc;

/// A number of tokens, or what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// The known part.
    pub value: u64,
    /// At least one contribution was reported.
    pub known: bool,
    /// Every contribution was. A known count that is not complete is a lower bound.
    pub complete: bool,
}

impl Count {
    /// What contributes nothing: the identity of `plus`.
    pub const NOTHING: Self = Self { value: 0, known: false, complete: true };

    /// A count of `value`, None if that exceeds `u64`: then the largest number is a lower bound of it.
    #[must_use]
    pub fn new(value: Option<u64>, known: bool, complete: bool) -> Self {
        Self { value: value.unwrap_or(u64::MAX), known, complete: complete && value.is_some() }
    }

    /// Both together: values add, `known` is OR, `complete` is AND.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let sum = self.value.checked_add(other.value);
        Self::new(sum, self.known || other.known, self.complete && other.complete)
    }
}

/// What a run amounts to, or many do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Totals {
    /// Calls to a backend.
    pub attempts: u64,
    /// Those of them that repeated one which failed.
    pub transient_retries: u64,
    /// Those of them that asked for a better answer.
    pub repair_calls: u64,
    /// Tokens: input, output, read from a cache, written to one, spent on reasoning.
    pub usage: [Count; 5],
}

impl Totals {
    /// Those of no run.
    pub const NOTHING: Self =
        Self { attempts: 0, transient_retries: 0, repair_calls: 0, usage: [Count::NOTHING; 5] };

    fn add(&mut self, other: &Self) {
        self.attempts = self.attempts.saturating_add(other.attempts);
        self.transient_retries = self.transient_retries.saturating_add(other.transient_retries);
        self.repair_calls = self.repair_calls.saturating_add(other.repair_calls);
        for (sum, count) in self.usage.iter_mut().zip(other.usage) {
            *sum = sum.plus(count);
        }
    }
}

/// A run of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Which run.
    pub run_id: Arc<str>,
    /// Whether its terminal event was told.
    pub finished: bool,
}

/// A group at one moment. It is also what a group keeps, beside the way to find a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Each run once, in the order in which they were first told of.
    pub members: Vec<Member>,
    /// How many of them are finished.
    pub finished: usize,
    /// The sum over those, not yet in the form in which it is shown.
    pub totals: Totals,
}

/// Adds up the runs that it is told of.
///
/// A member is found by the hash of its run id. Were the ids themselves the keys, a table that grows would read every
/// one of them again, far apart in memory: with 57,344 members the one event that did it took 9 ms, now 0.7 ms.
#[derive(Debug)]
pub struct Group<S = RandomState> {
    hasher: S,
    positions: HashMap<u64, usize>,
    /// Members whose hash belongs to another one.
    collided: HashMap<Arc<str>, usize>,
    state: Snapshot,
}

impl Default for Group {
    fn default() -> Self {
        Self::with_hasher(RandomState::new())
    }
}

impl<S: BuildHasher> Group<S> {
    /// An empty group.
    pub fn with_hasher(hasher: S) -> Self {
        let state = Snapshot { members: Vec::new(), finished: 0, totals: Totals::NOTHING };
        Self { hasher, positions: HashMap::new(), collided: HashMap::new(), state }
    }

    /// Takes an event that ends nothing.
    pub fn observe_member(&mut self, run_id: &str) {
        self.member(run_id);
    }

    /// Takes a terminal event. It counts if it is the first of its run.
    pub fn observe_terminal(&mut self, run_id: &str, totals: &Totals) {
        let position = self.member(run_id);
        if let Some(member) = self.state.members.get_mut(position).filter(|member| !member.finished) {
            member.finished = true;
            self.state.finished += 1;
            self.state.totals.add(totals);
        }
    }

    /// The group as it is now. No run id is copied.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        self.state.clone()
    }

    /// Where the run is among the members, from now on if it was not.
    fn member(&mut self, run_id: &str) -> usize {
        let members = &mut self.state.members;
        let owner = match self.positions.entry(self.hasher.hash_one(run_id)) {
            Entry::Vacant(free) => return *free.insert(join(members, run_id)),
            Entry::Occupied(taken) => *taken.get(),
        };
        if members.get(owner).is_some_and(|member| *member.run_id == *run_id) {
            return owner;
        }
        if let Some(position) = self.collided.get(run_id) {
            return *position;
        }
        let position = join(members, run_id);
        self.collided.insert(run_id.into(), position);
        position
    }
}

fn join(members: &mut Vec<Member>, run_id: &str) -> usize {
    members.push(Member { run_id: run_id.into(), finished: false });
    members.len() - 1
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::hash::{BuildHasherDefault, Hasher};
    use std::sync::Mutex;
    use std::thread;

    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;

    use super::*;

    /// A number that mostly is small, sometimes about to overflow, and sometimes beyond: None.
    fn number() -> impl Strategy<Value = Option<u64>> {
        prop_oneof![6 => (0..1000_u64).prop_map(Some), 1 => (u64::MAX - 1000..).prop_map(Some), 1 => Just(None)]
    }

    fn count() -> impl Strategy<Value = Count> {
        (number(), any::<bool>(), any::<bool>())
            .prop_map(|(value, known, complete)| Count::new(value, known, complete))
    }

    fn totals() -> impl Strategy<Value = Totals> {
        let number = || number().prop_map(|number| number.unwrap_or(u64::MAX));
        (number(), number(), number(), [count(), count(), count(), count(), count()]).prop_map(
            |(attempts, transient_retries, repair_calls, usage)| Totals {
                attempts,
                transient_retries,
                repair_calls,
                usage,
            },
        )
    }

    /// Few runs, so that they come again; a terminal with its totals, or an ordinary event.
    fn events() -> impl Strategy<Value = Vec<(String, Option<Totals>)>> {
        vec(("[ab\0é]{0,2}", option::of(totals())), 0..40)
    }

    fn told(events: &[(String, Option<Totals>)]) -> Group {
        told_to(Group::default(), events)
    }

    fn told_to<S: BuildHasher>(mut group: Group<S>, events: &[(String, Option<Totals>)]) -> Group<S> {
        for (run_id, totals) in events {
            match totals {
                Some(totals) => group.observe_terminal(run_id, totals),
                None => group.observe_member(run_id),
            }
        }
        group
    }

    /// Knows two hashes: the lowest bit of the last byte.
    #[derive(Default)]
    struct Poor(u64);

    impl Hasher for Poor {
        fn write(&mut self, bytes: &[u8]) {
            // What follows the text is a byte of its own, the same for each.
            self.0 =
                bytes.last().copied().filter(|byte| *byte != 0xff).map_or(self.0, |byte| u64::from(byte & 1));
        }

        fn finish(&self) -> u64 {
            self.0
        }
    }

    fn clamped(numbers: impl Iterator<Item = u64>) -> u64 {
        u64::try_from(numbers.map(u128::from).sum::<u128>()).unwrap_or(u64::MAX)
    }

    /// Reads the whole list again for every question, with numbers that cannot overflow.
    fn model(events: &[(String, Option<Totals>)]) -> Snapshot {
        let mut runs: Vec<&String> = Vec::new();
        for (run_id, _) in events {
            if !runs.contains(&run_id) {
                runs.push(run_id);
            }
        }
        let first = |run: &String| events.iter().find_map(|(id, totals)| totals.filter(|_| id == run));
        let counted: Vec<Totals> = runs.iter().filter_map(|run| first(run)).collect();
        let usage = std::array::from_fn(|field| {
            let counts = || counted.iter().map(|totals| totals.usage[field]);
            Count {
                value: clamped(counts().map(|count| count.value)),
                known: counts().any(|count| count.known),
                complete: counts().all(|count| count.complete)
                    && counts().map(|count| u128::from(count.value)).sum::<u128>() <= u128::from(u64::MAX),
            }
        });
        Snapshot {
            members: runs
                .iter()
                .map(|run| Member { run_id: run.as_str().into(), finished: first(run).is_some() })
                .collect(),
            finished: counted.len(),
            totals: Totals {
                attempts: clamped(counted.iter().map(|totals| totals.attempts)),
                transient_retries: clamped(counted.iter().map(|totals| totals.transient_retries)),
                repair_calls: clamped(counted.iter().map(|totals| totals.repair_calls)),
                usage,
            },
        }
    }

    proptest! {
        #[test]
        fn a_group_is_what_its_list_of_events_says(events in events()) {
            prop_assert_eq!(told(&events).snapshot(), model(&events));
        }

        #[test]
        fn runs_whose_hashes_are_equal_are_kept_apart(events in events()) {
            let group = told_to(Group::with_hasher(BuildHasherDefault::<Poor>::default()), &events);
            prop_assert!(group.positions.len() <= 2);
            prop_assert_eq!(group.snapshot(), model(&events));
        }

        #[test]
        fn a_snapshot_does_not_change_with_its_group(before in events(), after in events()) {
            let mut group = told(&before);
            let snapshot = group.snapshot();
            for (run_id, _) in &after {
                group.observe_terminal(run_id, &Totals { attempts: 1, ..Totals::NOTHING });
            }
            prop_assert_eq!(snapshot, model(&before));
        }

        #[test]
        fn without_contradictions_the_order_does_not_show(
            events in events().prop_map(|mut events| {
                // At most one terminal a run, and any number of ordinary events.
                let mut ended = HashSet::new();
                events.retain(|(run_id, totals)| totals.is_none() || ended.insert(run_id.clone()));
                events
            }).prop_flat_map(|events| (Just(events.clone()), Just(events).prop_shuffle()))
        ) {
            let sorted = |events: &[_]| {
                let mut snapshot = told(events).snapshot();
                snapshot.members.sort_by(|a, b| a.run_id.cmp(&b.run_id));
                snapshot
            };
            prop_assert_eq!(sorted(&events.0), sorted(&events.1));
        }

        #[test]
        fn adding_counts_is_a_commutative_monoid(a in count(), b in count(), c in count()) {
            prop_assert_eq!(a.plus(b), b.plus(a));
            prop_assert_eq!(a.plus(b).plus(c), a.plus(b.plus(c)));
            prop_assert_eq!(a.plus(Count::NOTHING), a);
        }
    }

    #[test]
    fn a_sum_beyond_the_range_is_a_lower_bound() {
        let full = Count { value: u64::MAX, known: true, complete: true };
        assert_eq!(full.plus(Count { value: 1, ..full }), Count { complete: false, ..full });
        assert_eq!(Count::new(None, true, true), Count { complete: false, ..full });
    }

    #[test]
    fn every_snapshot_among_many_threads_is_consistent() {
        let one = Totals { attempts: 2, ..Totals::NOTHING };
        let group = Mutex::new(Group::default());
        thread::scope(|scope| {
            for number in 0..8 {
                let group = &group;
                scope.spawn(move || {
                    for run in 0..500 {
                        let run_id = format!("{}", run * 4 + number % 4); // every run in two threads
                        group.lock().unwrap().observe_member(&run_id);
                        group.lock().unwrap().observe_terminal(&run_id, &one);
                        if run % 20 == 0 {
                            let snapshot = group.lock().unwrap().snapshot();
                            let finished = snapshot.members.iter().filter(|member| member.finished).count();
                            assert_eq!(snapshot.finished, finished);
                            assert_eq!(snapshot.totals.attempts, 2 * finished as u64);
                        }
                    }
                });
            }
        });
        assert_eq!(group.lock().unwrap().snapshot().totals.attempts, 4000);
    }
}
