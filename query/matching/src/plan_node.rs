//! Common implementation of physical plan nodes: their inputs, and that no rule looks into their expressions.

/// Methods of an [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan) without inputs. Its expressions are those that the
/// method `expressions` lists, where one is named.
#[macro_export]
macro_rules! without_inputs {
    ($(expressions = $listed:ident)?) => {
        $crate::opaque!($(expressions = $listed)?);

        fn children(&self) -> Vec<&std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            Vec::new()
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            _children: Vec<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>>,
            _options: datafusion::physical_plan::execution_plan::ReplaceChildrenOptions,
        ) -> datafusion::common::Result<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            Ok(self)
        }
    };
}

/// Methods of an [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan) that can be cloned and has one input, in
/// its field `input`.
#[macro_export]
macro_rules! over_one_input {
    () => {
        $crate::opaque!();

        fn children(&self) -> Vec<&std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            vec![&self.input]
        }

        fn replace_children(
            self: std::sync::Arc<Self>,
            mut children: Vec<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>>,
            _options: datafusion::physical_plan::execution_plan::ReplaceChildrenOptions,
        ) -> datafusion::common::Result<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            match children.pop() {
                Some(input) => Ok(std::sync::Arc::new(Self { input, ..Self::clone(&self) })),
                None => datafusion::common::plan_err!("{} needs an input", self.name()),
            }
        }
    };
}

/// Methods of an [`ExecutionPlan`](datafusion::physical_plan::ExecutionPlan) that passes the rows of its one input on as they
/// come.
#[macro_export]
macro_rules! passes_rows_on {
    () => {
        $crate::over_one_input!();

        fn properties(&self) -> &std::sync::Arc<datafusion::physical_plan::PlanProperties> {
            self.input.properties()
        }

        fn maintains_input_order(&self) -> Vec<bool> {
            vec![true]
        }

        fn benefits_from_input_partitioning(&self) -> Vec<bool> {
            vec![false]
        }
    };
}

/// Methods that are the same of all.
#[doc(hidden)]
#[macro_export]
macro_rules! opaque {
    ($(expressions = $listed:ident)?) => {
        fn apply_expressions(
            &self,
            _visit: &mut dyn FnMut(
                &std::sync::Arc<dyn datafusion::physical_plan::PhysicalExpr>,
            ) -> datafusion::common::Result<
                datafusion::common::tree_node::TreeNodeRecursion,
            >,
        ) -> datafusion::common::Result<datafusion::common::tree_node::TreeNodeRecursion> {
            $(
                for expression in self.$listed() {
                    if _visit(&expression)? == datafusion::common::tree_node::TreeNodeRecursion::Stop {
                        return Ok(datafusion::common::tree_node::TreeNodeRecursion::Stop);
                    }
                }
            )?
            Ok(datafusion::common::tree_node::TreeNodeRecursion::Continue)
        }

        fn with_new_children(
            self: std::sync::Arc<Self>,
            children: Vec<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>>,
        ) -> datafusion::common::Result<std::sync::Arc<dyn datafusion::physical_plan::ExecutionPlan>> {
            use datafusion::physical_plan::execution_plan::{ChildrenPropertiesMode, ReplaceChildrenOptions};
            self.replace_children(children, ReplaceChildrenOptions::new(ChildrenPropertiesMode::Recompute))
        }
    };
}
