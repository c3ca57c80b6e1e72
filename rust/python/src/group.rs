use std::sync::{Mutex, MutexGuard, PoisonError};

use promptkit_history as history;
use promptkit_history::{Count, Totals};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBoolMethods, PyInt, PyList, PyTuple};

use crate::error::Refusal;
use crate::message::read_text;

/// Input, output, read from a cache, written to one, reasoning.
type Usage = (Tokens, Tokens, Tokens, Tokens, Tokens);
/// Value, known, complete.
type Tokens = (u64, bool, bool);
const USAGE: &str = "a tuple of five tuples (value, known, complete)";
const NUMBER: &str = "a number that is not negative";

/// The totals of the runs that it is told of. Usable in any thread; told and asked without running Python code.
#[pyclass(frozen, module = "promptkit._history")]
pub(crate) struct Group(Mutex<history::Group>);

#[pymethods]
impl Group {
    #[new]
    fn new() -> Self {
        Self(Mutex::default())
    }

    /// Take an event that ends nothing.
    fn observe_member(&self, run_id: &Bound<'_, PyAny>) -> PyResult<()> {
        let run_id = read_text(run_id, "run_id")?;
        self.lock().observe_member(run_id);
        Ok(())
    }

    /// Take a terminal event, which counts if it is the first of its run.
    ///
    /// `usage` is the tokens of input and output, read from and written to a cache, and spent on reasoning, each
    /// `(value, known, complete)`. A number beyond 64 bits is taken as the largest one, and so is a sum; as a count
    /// of tokens it is not complete then.
    fn observe_terminal(
        &self,
        run_id: &Bound<'_, PyAny>,
        attempts: &Bound<'_, PyAny>,
        transient_retries: &Bound<'_, PyAny>,
        repair_calls: &Bound<'_, PyAny>,
        usage: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let run_id = read_text(run_id, "run_id")?;
        let read = |number, place| read_number(number, place).map(|number| number.unwrap_or(u64::MAX));
        let totals = Totals {
            attempts: read(attempts, "attempts")?,
            transient_retries: read(transient_retries, "transient_retries")?,
            repair_calls: read(repair_calls, "repair_calls")?,
            usage: read_usage(usage)?,
        };
        self.lock().observe_terminal(run_id, &totals);
        Ok(())
    }

    /// The group at this moment: the run ids in the order in which they were first told of, for each whether it has
    /// ended, how many have, attempts, transient retries, repair calls, usage.
    ///
    /// The usage is as it adds up: that of no run is neither known nor incomplete.
    #[allow(clippy::type_complexity, reason = "the tuple is the interface, spelled out in the stub")]
    fn snapshot<'py>(
        &self,
        py: Python<'py>,
    ) -> PyResult<(Bound<'py, PyList>, Bound<'py, PyList>, usize, u64, u64, u64, Usage)> {
        let history::Snapshot { members, finished, totals } = self.lock().snapshot();
        Ok((
            PyList::new(py, members.iter().map(|member| &*member.run_id))?,
            PyList::new(py, members.iter().map(|member| member.finished))?,
            finished,
            totals.attempts,
            totals.transient_retries,
            totals.repair_calls,
            totals.usage.map(|count| (count.value, count.known, count.complete)).into(),
        ))
    }
}

impl Group {
    /// Who has this runs no Python code and waits for nothing. So a thread may wait for it without letting go of the
    /// interpreter; no signal handler, finaliser or observer can meet it locked by its own thread; and it is free in
    /// the child of a fork, because a fork happens with the interpreter held or all its threads stopped.
    ///
    /// Nothing under it panics. If something did, it is better to go on with the totals than to fail every run.
    fn lock(&self) -> MutexGuard<'_, history::Group> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read_usage(usage: &Bound<'_, PyAny>) -> PyResult<[Count; 5]> {
    let counts = usage.cast::<PyTuple>().map_err(|_| Refusal::wrong_type(&"usage", USAGE, usage))?;
    if counts.len() != 5 {
        return Err(Refusal::wrong_shape(&"usage", USAGE).into());
    }
    let mut read = [Count::NOTHING; 5];
    for (read, count) in read.iter_mut().zip(counts.iter_borrowed()) {
        let fields =
            count.cast::<PyTuple>().map_err(|_| Refusal::wrong_type(&"a count of usage", USAGE, &count))?;
        let (value, known, complete): (Bound<'_, PyAny>, Bound<'_, PyAny>, Bound<'_, PyAny>) =
            fields.extract().map_err(|_| Refusal::wrong_shape(&"a count of usage", USAGE))?;
        *read = Count::new(
            read_number(&value, "a value of usage")?,
            read_truth(&known, "a known of usage")?,
            read_truth(&complete, "a complete of usage")?,
        );
    }
    Ok(read)
}

/// None: beyond 64 bits.
fn read_number(number: &Bound<'_, PyAny>, place: &str) -> PyResult<Option<u64>> {
    let number = number.cast::<PyInt>().map_err(|_| Refusal::wrong_type(&place, NUMBER, number))?;
    match number.extract::<u64>() {
        Ok(value) => Ok(Some(value)),
        Err(error) if !error.is_instance_of::<PyOverflowError>(number.py()) => Err(error),
        Err(_) if number.lt(0)? => Err(Refusal::wrong_shape(&place, NUMBER).into()),
        Err(_) => Ok(None),
    }
}

fn read_truth(truth: &Bound<'_, PyAny>, place: &str) -> Result<bool, Refusal> {
    truth
        .cast::<PyBool>()
        .map(PyBoolMethods::is_true)
        .map_err(|_| Refusal::wrong_type(&place, "True or False", truth))
}
