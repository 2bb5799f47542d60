//! Model types of detectors, the algorithms of each, and the parameters that each algorithm uses.

/// Kind of question that a detector answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ModelType {
    /// Odd buckets of one field.
    Univariate,
    /// Odd combinations of several fields.
    Multivariate,
    /// Documents far from every cluster.
    Clustering,
    /// Coming buckets of one field.
    Forecasting,
    /// New or unusually frequent log lines.
    Text,
}

impl ModelType {
    pub(crate) const ALL: [Self; 5] =
        [Self::Univariate, Self::Multivariate, Self::Clustering, Self::Forecasting, Self::Text];

    /// Returns its name in requests, and in the names of result indices.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Univariate => "univariate",
            Self::Multivariate => "multivariate",
            Self::Clustering => "clustering",
            Self::Forecasting => "forecasting",
            Self::Text => "text",
        }
    }

    /// Finds one by its name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }

    /// Returns whether it models buckets of time, not documents.
    pub(crate) fn is_series(self) -> bool {
        matches!(self, Self::Univariate | Self::Forecasting)
    }

    /// Returns whether it takes several fields.
    pub(crate) fn has_fields(self) -> bool {
        matches!(self, Self::Multivariate | Self::Clustering)
    }

    /// Returns whether it scores documents or buckets.
    pub(crate) fn is_scored(self) -> bool {
        self != Self::Forecasting
    }

    /// Lists the names of its algorithms; the first is the default.
    pub(crate) fn algorithms(self) -> impl Iterator<Item = DetectorAlgorithm> {
        DetectorAlgorithm::ALL.into_iter().filter(move |one| one.model_type() == self)
    }
}

/// Algorithm of a detector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DetectorAlgorithm {
    SeasonalDecomposition,
    RandomCutForest,
    IsolationForest,
    LocalOutlierFactor,
    KMeans,
    Dbscan,
    Hdbscan,
    ExponentialSmoothing,
    SeasonalSmoothing,
    LagForest,
    Drain,
    TfIdf,
}

/// Parameters that some algorithms use and others do not.
pub(crate) const PARAMETERS: [&str; 9] = [
    "contamination",
    "threshold",
    "n_neighbors",
    "random_state",
    "n_clusters",
    "min_samples",
    "forecast_steps",
    "seasonality",
    "min_documents",
];

impl DetectorAlgorithm {
    const ALL: [Self; 12] = [
        Self::SeasonalDecomposition,
        Self::RandomCutForest,
        Self::IsolationForest,
        Self::LocalOutlierFactor,
        Self::KMeans,
        Self::Dbscan,
        Self::Hdbscan,
        Self::ExponentialSmoothing,
        Self::SeasonalSmoothing,
        Self::LagForest,
        Self::Drain,
        Self::TfIdf,
    ];

    /// Returns its name in requests.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::SeasonalDecomposition => "seasonal_decomposition",
            Self::RandomCutForest => "random_cut_forest",
            Self::IsolationForest => "isolation_forest",
            Self::LocalOutlierFactor => "local_outlier_factor",
            Self::KMeans => "kmeans",
            Self::Dbscan => "dbscan",
            Self::Hdbscan => "hdbscan",
            Self::ExponentialSmoothing => "ets",
            Self::SeasonalSmoothing => "mstl_ets",
            Self::LagForest => "random_forest",
            Self::Drain => "drain",
            Self::TfIdf => "tf_idf",
        }
    }

    /// Returns the model type that it belongs to.
    pub(crate) fn model_type(self) -> ModelType {
        match self {
            Self::SeasonalDecomposition | Self::RandomCutForest => ModelType::Univariate,
            Self::IsolationForest | Self::LocalOutlierFactor => ModelType::Multivariate,
            Self::KMeans | Self::Dbscan | Self::Hdbscan => ModelType::Clustering,
            Self::ExponentialSmoothing | Self::SeasonalSmoothing | Self::LagForest => ModelType::Forecasting,
            Self::Drain | Self::TfIdf => ModelType::Text,
        }
    }

    /// Lists the parameters that it uses.
    pub(crate) fn parameters(self) -> &'static [&'static str] {
        match self {
            Self::SeasonalDecomposition => &["contamination", "threshold", "seasonality"],
            Self::RandomCutForest => &["contamination", "threshold", "seasonality", "random_state"],
            Self::IsolationForest => &["contamination", "threshold", "random_state"],
            Self::LocalOutlierFactor => &["contamination", "threshold", "random_state", "n_neighbors"],
            Self::KMeans => &["contamination", "threshold", "random_state", "n_clusters"],
            Self::Dbscan | Self::Hdbscan => &["contamination", "threshold", "random_state", "min_samples"],
            Self::ExponentialSmoothing | Self::SeasonalSmoothing => &["forecast_steps", "seasonality"],
            Self::LagForest => &["forecast_steps", "random_state"],
            Self::Drain | Self::TfIdf => &["contamination", "threshold", "min_documents"],
        }
    }
}
