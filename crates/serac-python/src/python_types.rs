//! The classes of Python's standard library, and of this package, that values of SQL have in
//! Python. Looked up once, when the first value needs them.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

/// The classes, and some of their objects.
pub struct PythonTypes {
    /// `decimal.Decimal`.
    pub decimal: Py<PyAny>,
    /// `datetime.date`.
    pub date: Py<PyAny>,
    /// `datetime.time`.
    pub time: Py<PyAny>,
    /// `datetime.datetime`.
    pub datetime: Py<PyAny>,
    /// `datetime.timedelta`.
    pub timedelta: Py<PyAny>,
    /// `datetime.timezone.utc`.
    pub utc: Py<PyAny>,
    /// 1970-01-01 as a `datetime` without a time zone.
    pub epoch: Py<PyAny>,
    /// 1970-01-01 as a `datetime` in UTC.
    pub epoch_utc: Py<PyAny>,
    /// `uuid.UUID`.
    pub uuid: Py<PyAny>,
    /// `json.loads`.
    pub json_loads: Py<PyAny>,
    /// `json.dumps`.
    pub json_dumps: Py<PyAny>,
    /// `seracdb.Interval`.
    pub interval: Py<PyAny>,
    /// `seracdb.Json`.
    pub json: Py<PyAny>,
    /// `seracdb._lent.caller`.
    pub caller: Py<PyAny>,
    /// `seracdb._lent.find`.
    pub find_frame: Py<PyAny>,
    /// `seracdb._lent.lent`.
    pub lent_frame: Py<PyAny>,
    /// `seracdb._functions.arrow_columns`.
    pub arrow_columns: Py<PyAny>,
    /// `seracdb._functions.arrow_array`.
    pub arrow_array: Py<PyAny>,
}

impl PythonTypes {
    /// The classes.
    ///
    /// # Errors
    /// If Python's standard library is not whole.
    pub fn get(py: Python<'_>) -> PyResult<&Self> {
        static TYPES: PyOnceLock<PythonTypes> = PyOnceLock::new();
        TYPES.get_or_try_init(py, || Self::import(py))
    }

    fn import(py: Python<'_>) -> PyResult<Self> {
        let datetime_module = py.import("datetime")?;
        let own = py.import("seracdb._types")?;
        let lent = py.import("seracdb._lent")?;
        let functions = py.import("seracdb._functions")?;
        let json = py.import("json")?;
        let datetime = datetime_module.getattr("datetime")?;
        let utc = datetime_module.getattr("timezone")?.getattr("utc")?;
        let epoch = datetime.call1((1970, 1, 1))?;
        let epoch_utc = datetime.call1((1970, 1, 1, 0, 0, 0, 0, &utc))?;
        Ok(Self {
            decimal: py.import("decimal")?.getattr("Decimal")?.unbind(),
            date: datetime_module.getattr("date")?.unbind(),
            time: datetime_module.getattr("time")?.unbind(),
            timedelta: datetime_module.getattr("timedelta")?.unbind(),
            datetime: datetime.unbind(),
            utc: utc.unbind(),
            epoch: epoch.unbind(),
            epoch_utc: epoch_utc.unbind(),
            uuid: py.import("uuid")?.getattr("UUID")?.unbind(),
            json_loads: json.getattr("loads")?.unbind(),
            json_dumps: json.getattr("dumps")?.unbind(),
            interval: own.getattr("Interval")?.unbind(),
            json: own.getattr("Json")?.unbind(),
            caller: lent.getattr("caller")?.unbind(),
            find_frame: lent.getattr("find")?.unbind(),
            lent_frame: lent.getattr("lent")?.unbind(),
            arrow_columns: functions.getattr("arrow_columns")?.unbind(),
            arrow_array: functions.getattr("arrow_array")?.unbind(),
        })
    }
}
