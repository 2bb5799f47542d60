//! The text of panics, and work whose panic is caught.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the message of a panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown panic")
}

/// Runs work that may panic, and returns at most so many bytes of what the panic said. What the work has changed by then must not be
/// used any more.
///
/// # Errors
/// The text of the panic.
pub fn catch_panic<T>(work: impl FnOnce() -> T, most: usize) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| {
        let text = panic_text(&*panic);
        text[..text.floor_char_boundary(most)].to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_panic_is_cut_between_characters() {
        assert_eq!(catch_panic(|| 7, 4), Ok(7));
        let caught = catch_panic(|| panic!("a{}", "é"), 2);
        assert_eq!(caught, Err::<(), _>("a".to_owned()));
    }
}
