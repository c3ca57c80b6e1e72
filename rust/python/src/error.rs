use std::fmt;

use promptkit_history::Error;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

/// What is wrong with an argument, and where.
#[derive(Debug)]
pub(crate) struct Refusal {
    place: String,
    fault: Fault,
}

#[derive(Debug)]
enum Fault {
    Type { expected: &'static str, found: String },
    Shape(&'static str),
    Surrogate,
    History(Error),
}

impl Refusal {
    /// `found` is not what belongs there.
    pub(crate) fn wrong_type(
        place: &impl fmt::Display,
        expected: &'static str,
        found: &Bound<'_, PyAny>,
    ) -> Self {
        let found =
            found.get_type().name().map_or_else(|_| String::from("something else"), |name| name.to_string());
        Self { place: place.to_string(), fault: Fault::Type { expected, found } }
    }

    /// The types are right, but not together.
    pub(crate) fn wrong_shape(place: &impl fmt::Display, expected: &'static str) -> Self {
        Self { place: place.to_string(), fault: Fault::Shape(expected) }
    }

    /// The text has no UTF-8 form.
    pub(crate) fn surrogate(place: &impl fmt::Display) -> Self {
        Self { place: place.to_string(), fault: Fault::Surrogate }
    }

    /// The tree refuses it.
    pub(crate) fn history(place: &impl fmt::Display, error: Error) -> Self {
        Self { place: place.to_string(), fault: Fault::History(error) }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = &self.place;
        match &self.fault {
            Fault::Type { expected, found } => write!(f, "{place} must be {expected}, not {found}"),
            Fault::Shape(expected) => write!(f, "{place} must be {expected}"),
            Fault::Surrogate => write!(f, "{place} contains a lone surrogate, which has no UTF-8 form"),
            Fault::History(error) => write!(f, "{place}: {error}"),
        }
    }
}

impl From<Refusal> for PyErr {
    fn from(refusal: Refusal) -> Self {
        match refusal.fault {
            Fault::Type { .. } => PyTypeError::new_err(refusal.to_string()),
            Fault::Shape(_) | Fault::Surrogate | Fault::History(_) => {
                PyValueError::new_err(refusal.to_string())
            }
        }
    }
}
