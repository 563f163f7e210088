//! From a [`State`] to a frame. Pure: the same state and size give the same characters.

use super::row::Row;
use super::state::State;
use crate::snapshot::{RangeView, TargetState};
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Clear, Paragraph, Row as TableRow, Table, Widget};
use sexton_tuner::words::bytes;

/// Columns of a frame that is printed and not shown: what a log viewer shows without wrapping.
const PLAIN_COLUMNS: u16 = 132;
/// Lines of a frame that is printed: beyond them something is wrong with the agent, or with the reader.
const PLAIN_LINES_MAX: u16 = 2_000;
/// From this width on the exact totals have room beside the figures per seek, and databases beside column
/// families.
const WIDE_COLUMNS: u16 = 112;
/// Characters of a database's directory that are shown; of a longer one the end, by which it is known.
const DATABASE_COLUMNS: u16 = 24;
/// Lines that targets and gaps get at least, their title included, when there is not room for all.
const SECTION_LINES_MIN: u16 = 4;

const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const DIM: Style = Style::new().fg(Color::DarkGray);
const SELECTED: Style = Style::new().add_modifier(Modifier::REVERSED);
const ALARM: Style = Style::new().fg(Color::Red);

/// Draws all of `area`.
pub fn draw(state: &State, area: Rect, buffer: &mut Buffer) {
    let rows = state.rows();
    let ranges = state.ranges();
    let gaps = gap_lines(state, &rows);
    let sections = Sections::new(area, [rows.len(), ranges.len(), gaps.len()]);
    Paragraph::new(title(state)).render(sections.title, buffer);
    targets_table(state, &rows, sections.targets).render(sections.targets, buffer);
    ranges_table(&ranges, sections.ranges).render(sections.ranges, buffer);
    Paragraph::new(gaps).render(sections.gaps, buffer);
    Paragraph::new(footer(state)).style(DIM).render(sections.footer, buffer);
    if state.help {
        draw_help(area, buffer);
    }
}

/// The same as lines of text, with room for everything.
pub fn plain_text(state: &State) -> String {
    let rows = state.rows();
    let lines = [rows.len(), state.ranges().len(), gap_lines(state, &rows).len()];
    let wanted = lines.into_iter().map(section_lines).fold(2, u16::saturating_add);
    let area = Rect::new(0, 0, PLAIN_COLUMNS, wanted.min(PLAIN_LINES_MAX));
    let mut buffer = Buffer::empty(area);
    draw(state, area, &mut buffer);
    let mut text = String::new();
    for y in 0..area.height {
        let line: String =
            (0..area.width).filter_map(|x| buffer.cell((x, y))).map(|cell| cell.symbol()).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Where on the screen everything stands.
struct Sections {
    title: Rect,
    targets: Rect,
    ranges: Rect,
    gaps: Rect,
    footer: Rect,
}

impl Sections {
    /// Divides `area` for so many targets, ranges and lines of gaps. Where there is not room for all, targets
    /// and gaps get a third and a quarter, and ranges the rest.
    fn new(area: Rect, lines: [usize; 3]) -> Sections {
        let body = area.height.saturating_sub(2);
        let [mut targets, ranges, mut gaps] = lines.map(section_lines);
        if targets.saturating_add(ranges).saturating_add(gaps) > body {
            targets = targets.min(SECTION_LINES_MIN.max(body / 3));
            gaps = gaps.min(SECTION_LINES_MIN.max(body / 4));
        }
        let mut next = area.y;
        let mut take = |lines: u16| {
            let lines = lines.min(area.bottom().saturating_sub(next));
            let section = Rect { y: next, height: lines, ..area };
            next += lines;
            section
        };
        let title = take(1);
        let targets = take(targets);
        let ranges = take(body.saturating_sub(targets.height + gaps));
        let gaps = take(body.saturating_sub(targets.height + ranges.height));
        Sections { title, targets, ranges, gaps, footer: take(1) }
    }
}

/// Lines of a section: its own, a title and an empty line; none without any.
fn section_lines(lines: usize) -> u16 {
    if lines == 0 { 2 } else { u16::try_from(lines).unwrap_or(u16::MAX).saturating_add(2) }
}

fn title(state: &State) -> Line<'static> {
    let at = match state.at().split_once('.') {
        // Fractions of a second are of no use to the eye.
        Some((seconds, _)) => format!("{seconds}Z"),
        None if state.at().is_empty() => "waiting for the first snapshot".to_owned(),
        None => state.at().to_owned(),
    };
    let mut text = format!("sexton top  {}  {at}  cycle {}", state.source, state.cycles());
    if state.paused {
        text.push_str("  PAUSED");
    }
    match &state.trouble {
        Some(trouble) => Line::styled(format!("{text}  {trouble}"), ALARM),
        None => Line::styled(text, BOLD),
    }
}

fn footer(state: &State) -> Line<'static> {
    let text = "q quit   up/down target   p pause   ? help   s sort by ";
    Line::from(format!("{text}{}", state.sort))
}

fn right(text: impl Into<String>) -> Text<'static> {
    Text::from(text.into()).right_aligned()
}

fn targets_table(state: &State, rows: &[Row], area: Rect) -> Table<'static> {
    let is_wide = area.width >= WIDE_COLUMNS;
    let mut columns = vec![
        (Text::from("TARGET"), Constraint::Fill(1)),
        (Text::from("STATE"), Constraint::Length(8)),
        (right("PAIN s/s"), Constraint::Length(9)),
        (right("SEEKS/s"), Constraint::Length(9)),
        (right("TOMB/SEEK"), Constraint::Length(10)),
        (right("MISS/SEEK"), Constraint::Length(10)),
        (right("PROBES"), Constraint::Length(7)),
        (right("GAPS"), Constraint::Length(4)),
    ];
    if is_wide {
        columns.insert(6, (right("TOMB/s"), Constraint::Length(9)));
        columns.insert(7, (right("MISS/s"), Constraint::Length(9)));
    }
    let (header, widths): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let selected = state.selected_index(rows);
    // One line is the header's, one stays empty.
    let shown = usize::from(area.height.saturating_sub(2)).max(1);
    let first = (selected + 1).saturating_sub(shown);
    let lines = rows.iter().enumerate().skip(first).take(shown);
    let lines = lines.map(|(index, row)| target_line(row, is_wide, index == selected));
    Table::new(lines, widths).header(TableRow::new(header).style(BOLD))
}

fn target_line(row: &Row, is_wide: bool, is_selected: bool) -> TableRow<'static> {
    let mut cells = vec![
        Text::from(row.name.clone()),
        Text::from(state_name(row.state)),
        right(format!("{:.4}", row.pain_seconds_per_second)),
        right(amount(row.rates.seeks_per_second)),
        right(amount(row.rates.tombstones_per_seek)),
        right(amount(row.rates.misses_per_seek)),
        right(
            row.rates
                .probe_cost_ratio
                .map_or_else(|| "-".to_owned(), |ratio| format!("{:.2} %", ratio * 100.0)),
        ),
        right(row.gaps.len().to_string()),
    ];
    if is_wide {
        cells.insert(6, right(amount(row.rates.tombstones_per_second)));
        cells.insert(7, right(amount(row.rates.misses_per_second)));
    }
    let style = match row.state {
        TargetState::Lost => DIM,
        TargetState::Blind | TargetState::Unresponsive => ALARM,
        TargetState::Watching | TargetState::Armed => Style::new(),
    };
    TableRow::new(cells).style(if is_selected { style.patch(SELECTED) } else { style })
}

fn state_name(state: TargetState) -> &'static str {
    match state {
        TargetState::Watching => "watching",
        TargetState::Armed => "armed",
        TargetState::Blind => "blind",
        TargetState::Unresponsive => "unresponsive",
        TargetState::Lost => "lost",
    }
}

fn ranges_table(ranges: &[&RangeView], area: Rect) -> Table<'static> {
    let is_wide = area.width >= WIDE_COLUMNS;
    let mut columns = vec![
        (right("PAIN s/s"), Constraint::Length(9)),
        (right("TOMB/SEEK"), Constraint::Length(10)),
        (right("MISS/SEEK"), Constraint::Length(10)),
        (right("DELETED"), Constraint::Length(7)),
        (right("REWRITES"), Constraint::Length(10)),
        (Text::from("COLUMN FAMILY"), Constraint::Length(16)),
        (Text::from("WORST RANGES"), Constraint::Fill(1)),
    ];
    if is_wide {
        columns.insert(5, (Text::from("DATABASE"), Constraint::Length(DATABASE_COLUMNS)));
    }
    let (header, widths): (Vec<_>, Vec<_>) = columns.into_iter().unzip();
    let lines = ranges.iter().map(|range| {
        let end = range.end.as_deref().unwrap_or("end");
        let mut cells = vec![
            right(format!("{:.4}", range.pain_seconds_per_second)),
            right(amount(Some(range.tombstones_per_seek))),
            right(amount(Some(range.misses_per_seek))),
            right(format!("{:.0} %", range.density * 100.0)),
            right(range.cost_bytes.map_or_else(|| "?".to_owned(), bytes)),
            Text::from(range.column_family.clone()),
            Text::from(format!("[{}, {end})", range.begin)),
        ];
        if is_wide {
            cells.insert(5, Text::from(end_of(&range.database, DATABASE_COLUMNS)));
        }
        TableRow::new(cells)
    });
    Table::new(lines, widths).header(TableRow::new(header).style(BOLD))
}

/// The last characters of a text that is too long.
fn end_of(text: &str, columns: u16) -> String {
    let (length, columns) = (text.chars().count(), usize::from(columns));
    if length <= columns {
        return text.to_owned();
    }
    let end: String = text.chars().skip(length + 1 - columns).collect();
    format!("…{end}")
}

/// What is missing of the selected target.
fn gap_lines(state: &State, rows: &[Row]) -> Vec<Line<'static>> {
    let Some(row) = rows.get(state.selected_index(rows)).filter(|row| !row.gaps.is_empty()) else {
        return Vec::new();
    };
    let mut lines = vec![Line::styled(format!("MISSING OF {}", row.name), BOLD)];
    for gap in &row.gaps {
        lines.push(Line::from(format!("{}: {}", gap.what, gap.reason)));
        lines.push(Line::styled(format!("    {}", gap.remedy), DIM));
    }
    lines
}

/// A number of any size in few characters.
fn amount(value: Option<f64>) -> String {
    match value {
        None => "-".to_owned(),
        Some(value) if value < 10.0 => format!("{value:.2}"),
        Some(value) if value < 10_000.0 => format!("{value:.1}"),
        Some(value) if value < 10_000_000.0 => format!("{:.1}k", value / 1e3),
        Some(value) if value < 10_000_000_000.0 => format!("{:.1}M", value / 1e6),
        Some(value) => format!("{:.1}G", value / 1e9),
    }
}

const HELP: &str = "\
 q, Esc, Ctrl-C   quit
 up, down         select a target: its ranges and gaps are shown
 s                sort the targets by the next column
 p                pause, and go on
 ?                this help

 PAIN       reader time lost to tombstones and misses, seconds a second
 SEEKS/s    positioning calls a second, while a window was open
 TOMB/SEEK  tombstones skipped per seek and the scan after it, in windows
 MISS/SEEK  blocks read per seek and the scan after it, in windows
 TOMB/s     tombstones skipped a second, exact; MISS/s: blocks read
 PROBES     time that probes took from the target's threads, share of a core
 DELETED    deletions per entry in the range's SST files
 REWRITES   bytes that compacting the range would rewrite
 GAPS       what cannot be read of the target, listed below the ranges";

fn draw_help(area: Rect, buffer: &mut Buffer) {
    let lines = u16::try_from(HELP.lines().count()).unwrap_or(u16::MAX);
    let columns = HELP.lines().map(str::len).max().unwrap_or_default();
    let columns = u16::try_from(columns).unwrap_or(u16::MAX).saturating_add(1);
    let (width, height) = (columns.min(area.width), lines.min(area.height));
    let place =
        Rect { x: area.x + (area.width - width) / 2, y: area.y + (area.height - height) / 2, width, height };
    Clear.render(place, buffer);
    Paragraph::new(HELP).style(SELECTED).render(place, buffer);
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::snapshot::{GapView, TargetView};
    use crate::top::Snapshot;
    use proptest::prelude::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;
    use ratatui_crossterm::crossterm::event::KeyCode;
    use sexton_tuner::evidence::Counters;

    fn target(name: &str, pain: f64) -> TargetView {
        TargetView {
            name: name.into(),
            pid: 4711,
            operations: 110,
            windows: 2,
            window_seconds: 2.0,
            attributed: Counters { tombstones_skipped: 110_000, block_reads: 55, ..Counters::default() },
            pain_seconds_per_second: pain,
            ..TargetView::default()
        }
    }

    fn state() -> State {
        let range = RangeView {
            target: "java-4711".into(),
            database: "/var/lib/ozone/metadata/om.db".into(),
            column_family: "keyTable".into(),
            begin: "2f766f6c… (24 bytes)".into(),
            pain_seconds_per_second: 1.5,
            tombstones_per_seek: 1_042_755.8,
            density: 0.93,
            cost_bytes: Some(12 << 20),
            ..RangeView::default()
        };
        let gap = GapView {
            what: "perf level 1 counts nothing".into(),
            reason: "a thread has a lower one".into(),
            remedy: "set it in the host".into(),
        };
        let java = TargetView { gaps: vec![gap], ..target("java-4711", 1.5) };
        let mut state = State::new("http://127.0.0.1:9776".into());
        state.take(Snapshot {
            at: "2026-01-01T00:00:00Z".into(),
            cycles: 7,
            targets: vec![target("mariadbd-12", 0.25), java],
            ranges: vec![range],
        });
        state
    }

    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(state, frame.area(), frame.buffer_mut())).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(line).map(|line| line.trim_end().to_owned()).collect()
    }

    #[test]
    fn a_frame_on_a_small_terminal() {
        let expected = [
            "sexton top  http://127.0.0.1:9776  2026-01-01T00:00:00Z  cycle 7",
            "TARGET           STATE     PAIN s/s   SEEKS/s  TOMB/SEEK  MISS/SEEK  PROBES GAPS",
            "java-4711        watching    1.5000      55.0     1000.0       0.50       -    1",
            "mariadbd-12      watching    0.2500      55.0     1000.0       0.50       -    0",
            "",
            " PAIN s/s  TOMB/SEEK  MISS/SEEK DELETED   REWRITES COLUMN FAMILY    WORST RANGES",
            "   1.5000    1042.8k       0.00    93 %   12.0 MiB keyTable         [2f766f6c… (",
            "",
            "MISSING OF java-4711",
            "perf level 1 counts nothing: a thread has a lower one",
            "    set it in the host",
            "",
            "",
            "q quit   up/down target   p pause   ? help   s sort by pain",
        ];
        let shown = screen(&state(), 80, 14);
        assert_eq!(shown, expected, "{}", shown.join("\n"));
    }

    #[test]
    fn a_wide_frame_has_the_exact_totals_too() {
        let shown = screen(&state(), 140, 14).join("\n");
        assert!(shown.contains("TOMB/s") && shown.contains("MISS/s"), "{shown}");
        assert!(shown.contains("DATABASE") && shown.contains("…ib/ozone/metadata/om.db keyTable"), "{shown}");
    }

    #[test]
    fn the_selected_target_is_on_the_screen_however_many_there_are() {
        let mut state = State::new("http://127.0.0.1:9776".into());
        let targets = (0..50).map(|number| target(&format!("t-{number:02}"), 0.0)).collect();
        state.take(Snapshot { at: "2026-01-01T00:00:00Z".into(), targets, ..Snapshot::default() });
        for _ in 0..40 {
            state.press(KeyCode::Down);
        }
        let shown = screen(&state, 80, 20).join("\n");
        assert!(shown.contains("t-40") && !shown.contains("t-00"), "{shown}");
    }

    #[test]
    fn trouble_a_pause_and_help_show() {
        let mut state = state();
        state.trouble = Some("no agent answers".into());
        state.press(KeyCode::Char('p'));
        state.press(KeyCode::Char('?'));
        let shown = screen(&state, 120, 30).join("\n");
        for words in ["no agent answers", "PAUSED", "this help"] {
            assert!(shown.contains(words), "{words}: {shown}");
        }
    }

    #[test]
    fn plain_text_has_everything() {
        let text = plain_text(&state());
        for words in ["java-4711", "mariadbd-12", "keyTable", "(24 bytes)", "set it in the host", "TOMB/s"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            plain_text(&State::new("http://127.0.0.1:9776".into()))
                .contains("waiting for the first snapshot")
        );
    }

    #[test]
    fn names_with_control_characters_do_no_harm() {
        let mut state = State::new("http://127.0.0.1:9776".into());
        let evil = target("evil\u{1b}[2J\u{7}name", 0.0);
        state.take(Snapshot {
            at: "2026-01-01T00:00:00Z".into(),
            targets: vec![evil],
            ..Snapshot::default()
        });
        assert!(!plain_text(&state).contains(['\u{1b}', '\u{7}']));
    }

    #[test]
    fn amounts_are_short() {
        for (value, shown) in
            [(0.0, "0.00"), (9.994, "9.99"), (1234.5, "1234.5"), (1_042_755.8, "1042.8k"), (5e12, "5000.0G")]
        {
            assert_eq!(amount(Some(value)), shown);
        }
        assert_eq!(amount(None), "-");
    }

    proptest! {
        #[test]
        fn any_size_of_terminal_is_drawn(width in 0u16..200, height in 0u16..60, help: bool) {
            let mut state = state();
            state.help = help;
            let area = Rect::new(0, 0, width, height);
            draw(&state, area, &mut Buffer::empty(area));
        }
    }
}
