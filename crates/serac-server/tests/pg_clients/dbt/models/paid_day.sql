{{ config(materialized="incremental", unique_key="day", on_schema_change="append_new_columns") }}
select
    {{ dbt.date_trunc("day", "loaded_at") }}::date as day,
    sum(amount) as paid,
    count(*) as payments
    {% if var("with_largest", false) %}, max(amount) as largest {% endif %}
from {{ source("raw", "payment") }}
group by 1
